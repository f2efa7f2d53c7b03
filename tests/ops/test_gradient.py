"""Every backend returns the gradient of the sequential loop, a tie shared evenly."""

import math
from itertools import permutations, product

import pytest
import torch
from hypothesis import given, settings
from scan_cases import (
    BACKENDS,
    DEGREES,
    DRAWS,
    DTYPES,
    LAYOUTS,
    LENGTHS,
    UNITS,
    WIDTHS,
    assert_backends_equal_the_definition,
    assert_close_gradients,
    assert_same,
    assert_same_gradients,
    cases,
    continuous,
    extreme,
    held,
    make_case,
    run,
    tied,
    with_nan,
)

from latchwork import minmax_scan
from reset_cases import RESETS

ALL = ["reference", *BACKENDS]
each_backend = pytest.mark.parametrize("backend", BACKENDS)
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)
each_reset = pytest.mark.parametrize("reset", RESETS)


@each_dtype
def test_every_width_of_degree_one_has_the_states_and_gradients_of_the_definition(dtype):
    for D, draw in product(WIDTHS, [*DRAWS, held]):
        case = make_case((2, 5, D), draw, dtype, reset="random", state=True)
        assert_backends_equal_the_definition(case, torch.randn_like(case["s"]))


@each_reset
@pytest.mark.parametrize("T", LENGTHS[:-1])
def test_every_length_and_reset_has_the_states_and_gradients_of_the_definition(T, reset):
    for draw in [continuous, tied, with_nan, held]:
        case = make_case((2, T, 5), draw, reset=reset)
        assert_backends_equal_the_definition(case, torch.randn_like(case["s"]))
    for draw in [continuous, tied, held]:
        case = make_case((2, T, 3, 2), draw, torch.float64, reset=reset)
        assert_backends_equal_the_definition(case, torch.randn_like(case["s"]), assert_close_gradients)


@each_dtype
@pytest.mark.parametrize("N", DEGREES)
def test_every_degree_has_the_states_and_gradients_of_the_definition_but_for_rounding(N, dtype):
    for U in UNITS:
        for draw in (tied, with_nan, held):
            case = make_case((2, 3, U, N), draw, dtype, reset="random", state=True)
            assert_backends_equal_the_definition(case, torch.randn_like(case["s"]), assert_close_gradients)


@each_dtype
@pytest.mark.parametrize("N", DEGREES)
def test_every_degree_has_the_gradients_of_the_definition_bit_for_bit_where_sums_are_exact(N, dtype):
    # Two steps divide a gradient twice by at most N + 1 and twice by 2; this one stays whole, and is a short number.
    unit = 4 * math.lcm(*range(1, N + 2)) ** 2
    if N > 4 and dtype != torch.float64:
        pytest.skip(f"a multiple of {unit} and its sums do not fit {dtype}")
    for U in UNITS:
        for draw in (continuous, tied, extreme):
            case = make_case((2, 2, U, N), draw, dtype, reset="random", state=True)
            grad = unit * torch.randint(-2, 3, case["s"].shape)
            assert_backends_equal_the_definition(case, grad.to(dtype))


@pytest.mark.parametrize(("reset", "draw"), [("never", held), ("never", tied), ("random", tied), ("first", continuous)])
def test_a_long_sequence_has_the_gradients_of_the_definition(reset, draw):
    for unit, check in {(5,): assert_same_gradients, (3, 2): assert_close_gradients}.items():
        case = make_case((2, LENGTHS[-1], *unit), draw, torch.float64, reset=reset)
        assert_backends_equal_the_definition(case, torch.randn_like(case["s"]), check)


@settings(max_examples=100)
@given(case=cases(draws=(*DRAWS, held)))
def test_any_case_has_the_states_and_gradients_of_the_definition(case):
    check = assert_same_gradients if case["r"].dim() == 3 else assert_close_gradients
    assert_backends_equal_the_definition(case, torch.randn_like(case["s"]), check)


@pytest.mark.parametrize("unit", [(5,), (3, 2)], ids=["degree one", "degree n"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_strides_of_the_inputs_and_of_the_output_s_gradient_do_not_matter(layout, unit):
    case = make_case((2, 9, *unit), continuous, torch.float64, reset="random", state=True, layout=layout)
    case["x0"] = case["x0"].transpose(0, -1).contiguous().transpose(0, -1)
    case["state"] = case["state"][:1].expand_as(case["x0"])
    case["reset"] = case["reset"].T.contiguous().T
    plain = torch.randn_like(case["s"], memory_format=torch.contiguous_format)
    one = torch.ones((), dtype=torch.float64)
    gradients = {
        "transposed": plain.transpose(1, -1).contiguous().transpose(1, -1),
        "time first": plain.transpose(0, 1).contiguous().transpose(0, 1),
        "a slice": torch.cat([plain, plain], -1)[..., : plain.shape[-1]],
        "one number": one.expand_as(plain),
        "one row": plain[:1].expand_as(plain),
    }
    check = assert_same_gradients if len(unit) == 1 else assert_close_gradients
    for grad in gradients.values():
        assert_backends_equal_the_definition(case, grad, check)


def in_order(a, order):
    """The same numbers, the dimension order[0] the outermost in memory."""
    return a.permute(order).contiguous().permute([order.index(i) for i in range(a.dim())])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@each_reset
@pytest.mark.parametrize("order", list(permutations(range(3))), ids=str)
def test_the_gradient_of_one_x0_for_all_rows_has_the_same_bits_in_every_memory_order(order, reset, dtype):
    """It is a sum over the rows, and torch sums in an order that depends on strides."""
    for B, T, D in [(2, 7, 5), (17, 3, 33), (40, 5, 1), (33, 4, 16)]:
        case = make_case((B, T, D), continuous, dtype, reset=reset, row=True, state=reset == "random")
        case |= {"r": in_order(case["r"], order), "s": in_order(case["s"], order[::-1])}
        grad = torch.randn_like(case["s"], memory_format=torch.contiguous_format)
        for each in (grad, in_order(grad, order), grad[:1].expand_as(grad)):
            assert_backends_equal_the_definition(case, each)


@pytest.mark.parametrize("order", list(permutations(range(3))), ids=str)
def test_gradients_that_torch_sums_where_the_caller_expanded_have_the_same_bits(order):
    r, s, x0 = torch.randn(9, 6), torch.randn(17, 1, 6), torch.randn(17, 1)
    grad, found = in_order(torch.randn(17, 9, 6), order), []
    for backend in ALL:
        leaves = [a.clone().requires_grad_() for a in (r, s, x0)]
        x = minmax_scan(
            leaves[0].expand(17, 9, 6), leaves[1].expand(17, 9, 6), leaves[2].expand(17, 6), backend=backend
        )
        found.append(torch.autograd.grad(x, leaves, grad))
    for each in found[1:]:
        for one, other in zip(found[0], each, strict=True):
            assert_same(one, other)


@pytest.mark.parametrize("backend", ALL)
def test_the_gradient_of_a_sum_is_that_of_ones(backend):
    case = make_case((2, 9, 5), tied)
    leaves = {name: case[name].clone().requires_grad_() for name in ("r", "s", "x0")}
    minmax_scan(**leaves, backend=backend).sum().backward()
    found = {name: leaf.grad for name, leaf in leaves.items()}
    assert_same_gradients(found, run(case, backend, torch.ones(2, 9, 5))[1])


@pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan])
def test_a_gradient_of_the_output_that_is_not_finite_goes_as_in_the_loop(value):
    for unit, check in {(17,): assert_same_gradients, (9, 3): assert_close_gradients}.items():
        case = make_case((2, 9, *unit), tied, reset="random")
        grad = torch.randn_like(case["s"])
        grad[0, 2], grad[1, 6], grad[1, 3, 5] = value, -value, value
        assert_backends_equal_the_definition(case, grad, check)


SHARES = [  # r, s, x0, and what becomes of a gradient of 1 in r, s, x0
    (2, 0, 1, (0, 0, 1)),
    (1, 0, 2, (1, 0, 0)),
    (1, 2, 1, (0, 1, 0)),
    (1, 0, 1, (1 / 2, 0, 1 / 2)),  # r = x > s
    (2, 1, 1, (0, 1 / 2, 1 / 2)),  # x = s < r
    (1, 1, 2, (1 / 2, 1 / 2, 0)),  # r = s < x
    (1, 1, 1, (1 / 4, 1 / 2, 1 / 4)),
    (torch.inf, -torch.inf, torch.inf, (1 / 2, 0, 1 / 2)),
    (0.0, -0.0, 1, (1 / 2, 1 / 2, 0)),  # zeros of either sign are equal
    (-0.0, -1, 0.0, (1 / 2, 0, 1 / 2)),
]


@pytest.mark.parametrize("backend", ALL)
@pytest.mark.parametrize(("r", "s", "x0", "shares"), SHARES)
def test_a_tie_of_degree_one_is_shared_evenly(r, s, x0, shares, backend):
    for unit, dtype in product([(1,), (1, 1)], DTYPES):  # degree n with n = 1 is the same
        case = {
            "r": torch.full((1, 1, *unit, *unit[1:]), r),
            "s": torch.full((1, 1, *unit), s),
            "x0": torch.full(unit, x0),
        }
        case = {name: a.to(dtype) for name, a in case.items()} | {"reset": None, "state": None}
        _, found = run(case, backend, torch.ones(1, 1, *unit, dtype=dtype))
        assert tuple(found[name].item() for name in ("r", "s", "x0")) == shares


@pytest.mark.parametrize("backend", ALL)
def test_a_tie_of_degree_n_is_shared_evenly_among_all_that_attain_the_maximum(backend):
    case = {
        # Row 0: min(9, 5), min(5, 9) and s are all 5, a third each. Row 1: min(7, 5) = 5 and min(9, 9) = 9.
        "r": torch.tensor([[9.0, 5.0], [7.0, 9.0]]).reshape(1, 1, 1, 2, 2),
        "s": torch.tensor([5.0, 0.0]).reshape(1, 1, 1, 2),
        "x0": torch.tensor([[5.0, 9.0]]),
        "reset": None,
        "state": None,
    }
    x, found = run(case, backend, torch.tensor([3.0, 8.0]).reshape(1, 1, 1, 2))
    assert x.flatten().tolist() == [5, 9]
    assert found["r"].flatten().tolist() == [0, 1, 0, 4]
    assert found["s"].flatten().tolist() == [1, 0]
    assert found["x0"].flatten().tolist() == [1, 4]


@pytest.mark.parametrize("backend", ALL)
def test_ties_of_many_steps_are_shared_as_in_the_loop_and_not_as_in_a_tree(backend):
    one = torch.ones(1, 3, 1)
    case = {"r": one, "s": one, "x0": one[0, 0], "reset": None, "state": None}
    _, found = run(case, backend, torch.tensor([0.0, 0.0, 1.0]).reshape(1, 3, 1))
    assert found["s"].flatten().tolist() == [1 / 32, 1 / 8, 1 / 2]
    assert found["r"].flatten().tolist() == [1 / 64, 1 / 16, 1 / 4]
    assert found["x0"].item() == 1 / 64


@each_backend
@pytest.mark.parametrize("unit", [(5,), (3, 2)], ids=["degree one", "degree n"])
@pytest.mark.parametrize("reset", ["never", "random"])
def test_gradients_agree_with_finite_differences(reset, unit, backend):
    case = make_case((2, 6, *unit), continuous, torch.float64, reset=reset, state=True)
    leaves = [case[name].requires_grad_() for name in ("r", "s", "x0", "state")]

    def scan(r, s, x0, state):
        return minmax_scan(r, s, x0, state=state, reset=case["reset"], backend=backend)

    torch.autograd.gradcheck(scan, leaves)


@each_backend
def test_only_the_gradients_that_are_asked_for_are_returned(backend):
    case = make_case((2, 6, 5), reset="random")
    for name in ("r", "s", "x0"):
        leaf = case[name].clone().requires_grad_()
        x = minmax_scan(**{**case, name: leaf}, backend=backend)
        x.sum().backward()
        assert_same_gradients({name: leaf.grad}, {name: run(case, "reference", torch.ones_like(x))[1][name]})
