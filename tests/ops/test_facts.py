"""What the mathematics promises, of every backend: bounds, gradients that do not vanish, the paper's examples."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scan_cases import BACKENDS, assert_same, run, tied

from latchwork import minmax_scan

ALL = ["reference", *BACKENDS]
each_backend = pytest.mark.parametrize("backend", ALL)
numbers = st.floats(allow_nan=False, width=32) | st.sampled_from([-1.0, 0.0, 1.0])  # the second for ties


def tensors(*shape):
    size = torch.Size(shape).numel()
    return st.lists(numbers, min_size=size, max_size=size).map(
        lambda a: torch.tensor(a, dtype=torch.float64).reshape(shape)
    )


@st.composite
def small_cases(draw):
    """A few steps of one batch row, of degree one (2 lanes) or n (2 units)."""
    T = draw(st.integers(1, 6))
    unit = draw(st.sampled_from([(2,), (2, 1), (2, 2), (2, 3)]))
    reset = draw(st.none() | st.lists(st.booleans(), min_size=T, max_size=T).map(lambda a: torch.tensor([a])))
    r, s, x0 = (draw(tensors(*shape)) for shape in [(1, T, *unit, *unit[1:]), (1, T, *unit), (1, *unit)])
    return {"r": r, "s": s, "x0": x0, "reset": reset, "state": None}


@each_backend
@given(case=small_cases())
def test_a_state_is_always_one_of_the_numbers_that_came_before(backend, case):
    x = run(case, backend)
    for t in range(x.shape[1]):
        for u in range(2):
            seen = torch.cat(
                [a.flatten() for a in (case["x0"][:, u], case["r"][:, : t + 1, u], case["s"][:, : t + 1, u])]
            )
            assert torch.isin(x[:, t, u], seen).all()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("unit", [(3,), (2, 3)], ids=["degree one", "degree n"])
def test_a_state_stays_within_its_inputs_however_long_the_sequence(unit, backend):
    r, s = torch.randn(1, 20_000, *unit, *unit[1:]).clamp(-2, 2), torch.randn(1, 20_000, *unit).clamp(-2, 2)
    assert minmax_scan(r, s, torch.zeros(unit), backend=backend).abs().max() <= 2


def test_the_gradient_of_a_held_state_is_exactly_one_after_100_000_steps():
    T, D = 100_000, 3
    r, s = 1 + torch.rand(1, T, D), -torch.rand(1, T, D)
    case = {"r": r, "s": s, "x0": torch.tensor([[1e-30, 0.5, 1.0]]), "reset": None, "state": None}
    grad = torch.zeros(1, T, D)
    grad[:, -1] = 1
    assert s.amax() < case["x0"].min()
    assert case["x0"].max() < r.amin()
    x, found = run(case, "cpu", grad)
    assert_same(x[:, -1], case["x0"])
    assert_same(found["x0"], torch.ones(1, D))
    assert not found["r"].any()
    assert not found["s"].any()


@each_backend
@given(case=small_cases(), data=st.data())
def test_the_gradients_of_one_state_are_shares_of_one(backend, case, data):
    grad = torch.zeros_like(case["s"])
    grad[tuple(data.draw(st.integers(0, size - 1)) for size in grad.shape)] = 1
    _, found = run(case, backend, grad)
    shares = torch.cat([a.flatten() for a in found.values()])
    assert (shares >= 0).all()
    assert (shares <= 1).all()
    # Of degree one every share is a power of a half; a third is rounded.
    assert shares.sum().item() == (1 if case["r"].dim() == 3 else pytest.approx(1, abs=1e-14))


@each_backend
@given(step=st.tuples(tensors(4), tensors(4)), x0=tensors(4))
def test_a_step_of_degree_one_repeated_changes_nothing_more(backend, step, x0):
    r, s = (a.expand(1, 3, 4) for a in step)
    x = minmax_scan(r, s, x0, backend=backend)
    assert_same(x[:, 1], x[:, 2])
    assert_same(x[:, 0], x[:, 1])


@each_backend
def test_a_packing_boundary_is_the_constant_step_of_x0(backend):
    r, s, x0 = tied(2, 20, 5), tied(2, 20, 5), tied(2, 5)
    reset = torch.rand(2, 20) < 0.3
    boundary = reset.unsqueeze(-1)
    # The constant step r = s = x0 stands before every step, and elsewhere one that changes nothing.
    between = (torch.where(boundary, x0.unsqueeze(1), same) for same in (torch.inf, -torch.inf))
    r_longer, s_longer = (torch.stack([a, b], 2).flatten(1, 2) for a, b in zip(between, (r, s), strict=True))
    longer = minmax_scan(r_longer, s_longer, x0, backend=backend)
    assert_same(longer[:, 1::2], minmax_scan(r, s, x0, reset=reset, backend=backend))


@each_backend
def test_example_1_of_the_paper_a_latch_with_levels(backend):
    u = torch.tensor([[0.0, 2.0], [7.0, 0.0], [5.0, 0.0], [0.0, 1.0]]).unsqueeze(0)
    x = minmax_scan(u[..., :1], u[..., 1:], torch.zeros(1), backend=backend)
    assert x.flatten().tolist() == [2, 2, 2, 1]


@each_backend
def test_example_2_of_the_paper_parity_by_swapping(backend):
    u = torch.tensor([1.0, 0.0, 1.0])
    # R(u) = [[1 - u, u], [u, 1 - u]]: R(0) is the identity and R(1) the swap. The paper prints the two exchanged.
    R = torch.stack([torch.stack([1 - u, u], -1), torch.stack([u, 1 - u], -1)], -2)
    assert R[1].tolist() == [[1, 0], [0, 1]]
    x = minmax_scan(R.reshape(1, 3, 1, 2, 2), torch.zeros(1, 3, 1, 2), torch.tensor([[1.0, 0.0]]), backend=backend)
    assert x.squeeze().tolist() == [[0, 1], [0, 1], [1, 0]]


@each_backend
def test_example_2_computes_the_parity_of_any_input(backend):
    u = torch.randint(0, 2, (3, 50)).float()
    R = torch.stack([torch.stack([1 - u, u], -1), torch.stack([u, 1 - u], -1)], -2).unsqueeze(2)
    x = minmax_scan(R, torch.zeros(3, 50, 1, 2), torch.tensor([[1.0, 0.0]]), backend=backend)
    assert torch.equal(x[:, :, 0, 1], u.cumsum(1) % 2)
