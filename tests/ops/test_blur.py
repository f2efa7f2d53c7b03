"""The gradient that near ties share: its definition, and where it is the exact one."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scan_cases import (
    BACKENDS,
    DTYPES,
    LAYOUTS,
    LENGTHS,
    RESETS,
    WIDTHS,
    assert_close_gradients,
    assert_same_gradients,
    assert_same_states,
    continuous,
    inner,
    make_case,
    naming,
    tied,
)
from scan_cases import run as run_exact

from latchwork import blurred_scan, minmax_scan

each_backend = pytest.mark.parametrize("backend", BACKENDS)
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)


def run(case, backend, grad, blur):
    """The states, and the gradients of r, s, x0 and state by name."""
    names = [name for name in ("r", "s", "x0", "state") if case[name] is not None]
    leaves = {name: case[name].detach().requires_grad_() for name in names}
    x = blurred_scan(**{**case, **leaves}, blur=blur, backend=backend)
    found = torch.autograd.grad(x, list(leaves.values()), grad, allow_unused=True, materialize_grads=True)
    return x.detach(), dict(zip(names, found, strict=True))


def assert_equals_definition(case, blur=0.5):
    grad = torch.randn_like(case["s"])
    states, gradients = run(case, "reference", grad, blur)
    assert_same_states(states, run_exact(case, "reference"))
    found = {}
    for backend in BACKENDS:
        with naming(f"backend {backend}"):
            x, found[backend] = run(case, backend, grad, blur)
            assert_same_states(x, states)
            assert_close_gradients(found[backend], gradients)  # the definition adds the shares in an order of its own
    assert_same_gradients(found["cpu"], found["torch"])


@each_dtype
@pytest.mark.parametrize("D", WIDTHS)
def test_every_width_has_the_gradients_of_the_definition(D, dtype):
    for draw in (continuous, tied):
        assert_equals_definition(make_case((2, 5, D), draw, dtype, reset="random", state=True))


@pytest.mark.parametrize("reset", RESETS)
@pytest.mark.parametrize("T", LENGTHS)
def test_every_length_and_reset_has_the_gradients_of_the_definition(T, reset):
    assert_equals_definition(make_case((2, T, 5), reset=reset))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_strides_do_not_matter(layout):
    assert_equals_definition(make_case((2, 9, 5), reset="random", state=True, layout=layout))


@given(
    seed=st.integers(0, 2**32 - 1),
    shape=st.tuples(st.integers(0, 3), st.sampled_from([0, 1, 2, 17, 64]), st.sampled_from(WIDTHS)),
    blur=st.sampled_from([1e-30, 1e-3, 0.3, 1.0, 7.0, 1e30]),
    reset=st.sampled_from(RESETS),
    state=st.booleans(),
)
def test_any_case_has_the_gradients_of_the_definition(seed, shape, blur, reset, state):
    torch.manual_seed(seed)
    assert_equals_definition(make_case(shape, reset=reset, state=state), blur)


@each_backend
def test_where_no_two_numbers_are_within_the_blur_the_gradient_is_the_exact_one(backend):
    case = make_case((3, 50, 17), tied, reset="random", state=True)
    case["s"] = case["s"] + 0.25  # no ties with r, x0 or state; but with states that were s
    case["r"], case["x0"], case["state"] = case["r"] + 0.5, case["x0"] + 0.125, case["state"] - 0.125
    grad = torch.randn_like(case["s"])
    exact = run_exact(case, backend, grad)[1]
    for name, found in run(case, backend, grad, 0.0625)[1].items():
        assert torch.equal(found, exact[name]), name


@each_backend
@pytest.mark.parametrize(
    ("r", "s", "x0", "shares"),  # of a gradient of 1, with a blur of 1, in r, s and x0
    [
        (1.0, -9.0, 1.0, (1 / 2, 0, 1 / 2)),
        (1.0, -9.0, 1.5, (3 / 4, 0, 1 / 4)),
        (1.0, -9.0, 2.0, (1, 0, 0)),
        (9.0, 0.5, 1.0, (0, 1 / 4, 3 / 4)),
        (9.0, 1.5, 1.0, (0, 3 / 4, 1 / 4)),
        (1.0, 1.0, 1.0, (1 / 4, 1 / 2, 1 / 4)),
        (1.0, 0.5, 1.5, (9 / 16, 1 / 4, 3 / 16)),
        (torch.inf, -torch.inf, torch.inf, (1 / 2, 0, 1 / 2)),
    ],
)
def test_shares_are_linear_in_the_distance(r, s, x0, shares, backend):
    case = {"r": torch.full((1, 1, 1), r), "s": torch.full((1, 1, 1), s), "x0": torch.full((1,), x0)}
    _, found = run({**case, "reset": None, "state": None}, backend, torch.ones(1, 1, 1), 1.0)
    assert tuple(found[name].item() for name in ("r", "s", "x0")) == shares


@each_backend
@given(seed=st.integers(0, 2**32 - 1), blur=st.floats(1e-3, 10))
def test_nothing_of_the_gradient_is_lost(seed, blur, backend):
    torch.manual_seed(seed)
    case = make_case((2, 20, 7), dtype=torch.float64, reset="random", state=True)
    grad = torch.randn_like(case["s"])
    _, found = run(case, backend, grad, blur)
    parts = [found["r"].sum((0, 1)), found["s"].sum((0, 1)), found["x0"].sum(0), found["state"].sum(0)]
    torch.testing.assert_close(sum(parts), grad.sum((0, 1)))


@pytest.mark.parametrize("side", [0, 1])
def test_it_is_the_mean_of_the_exact_gradient_over_noise_in_the_comparison(side):
    # One step, one comparison in doubt: s within the blur of x0, or r. The noise moves the numbers compared.
    torch.manual_seed(0)
    noise = torch.rand(20_000, 1, 1, dtype=torch.float64) * 2 - 1
    r, s, x0 = ((9.0, 0.3, 0.0), (0.3, -9.0, 0.0))[side]
    case = {
        "r": (torch.full_like(noise, r) + noise * side).requires_grad_(),
        "s": (torch.full_like(noise, s) + noise * (1 - side)).requires_grad_(),
        "x0": torch.full((1,), x0, dtype=torch.float64),
    }
    name = ("s", "r")[side]
    minmax_scan(**case).sum().backward()
    mean = case[name].grad.mean().item()
    plain = {"r": torch.full((1, 1, 1), r), "s": torch.full((1, 1, 1), s), "x0": torch.full((1,), x0)}
    _, found = run({**plain, "reset": None, "state": None}, "torch", torch.ones(1, 1, 1), 1.0)
    assert mean == pytest.approx(found[name].item(), abs=0.02)


@pytest.mark.parametrize("where", ["r", "s", "x0"])
def test_a_nan_reaches_the_same_gradients_in_every_backend(where):
    case = make_case((2, 9, 5), reset="random")
    case[where].view(-1)[3] = torch.nan
    grad = torch.randn_like(case["s"])
    states, gradients = run(case, "cpu", grad, 0.5)
    assert states.isnan().any()
    expected = run(case, "torch", grad, 0.5)
    assert_same_states(states, expected[0])
    assert_same_gradients(gradients, expected[1])


@each_backend
@pytest.mark.parametrize("reset", ["never", "random"])
def test_the_ops_pass_the_checks_of_torch(reset, backend):
    r, s, state, when, x0 = inner(make_case((2, 6, 5), reset=reset, state=True))
    leaves = [None if a is None else a.clone().requires_grad_() for a in (r, s, state, x0)]
    torch.library.opcheck(torch.ops.latchwork.blurred_scan.default, (*leaves[:3], when, leaves[3], 0.5, backend))
    x = torch.ops.latchwork.blurred_scan(r, s, state, when, x0, 0.5, backend)
    arguments = (torch.randn_like(x), r, s, x, state, when, x0, 0.5, backend)
    torch.library.opcheck(torch.ops.latchwork.blurred_scan_backward.default, arguments)


def test_under_autocast_r_and_s_take_the_wider_of_their_types_and_x0_follows():
    case = make_case((2, 6, 5), state=True)
    with torch.autocast("cpu"):
        x = blurred_scan(case["r"].bfloat16(), case["s"], case["x0"].double(), state=case["state"], blur=0.5)
    assert x.dtype == torch.float32


def test_it_compiles_into_one_graph():
    case = make_case((2, 6, 5), reset="random")
    compiled = torch.compile(blurred_scan, fullgraph=True, backend="aot_eager")
    leaf = case["r"].clone().requires_grad_()
    x = compiled(**{**case, "r": leaf}, blur=0.5)
    x.sum().backward()
    states, gradients = run(case, "cpu", torch.ones_like(case["s"]), 0.5)
    assert_same_states(x.detach(), states)
    assert_same_gradients({"r": leaf.grad}, {"r": gradients["r"]})


def test_a_second_derivative_is_a_clear_error():
    case = make_case((2, 6, 5))
    leaf = case["r"].requires_grad_()
    x = blurred_scan(**case, blur=0.5)
    with pytest.raises(NotImplementedError, match="no second derivative"):
        torch.autograd.grad(torch.autograd.grad(x.sum(), leaf, create_graph=True)[0].sum(), leaf)


@pytest.mark.parametrize("blur", [0, -1.0, torch.inf, torch.nan])
def test_a_blur_that_is_not_positive_and_finite_is_an_error(blur):
    with pytest.raises(ValueError, match="blur must be positive and finite; got"):
        blurred_scan(**make_case((2, 6, 5)), blur=blur)


def test_a_higher_degree_is_an_error():
    with pytest.raises(ValueError, match=r"r must be \(B, T, D\)"):
        blurred_scan(**make_case((2, 6, 3, 2)), blur=0.5)
