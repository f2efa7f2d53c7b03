"""Every backend returns the states of the definition, bit for bit."""

import pytest
import torch
from scan_cases import (
    BACKENDS,
    DTYPES,
    assert_same,
    assert_same_gradients,
    assert_same_states,
    make_case,
    run,
    tied,
)

from latchwork import minmax_scan
from latchwork.ops.algebra import apply

each_backend = pytest.mark.parametrize("backend", BACKENDS)
both_degrees = pytest.mark.parametrize("unit", [(5,), (3, 3)], ids=["degree one", "degree n"])


@both_degrees
def test_the_definition_is_a_loop_of_steps(unit):
    case = make_case((2, 9, *unit), tied)
    x, states = case["x0"], run(case, "reference")
    for t in range(9):
        x = apply(case["r"][:, t], case["s"][:, t], x)
        assert_same_states(states[:, t], x + 0.0)


@both_degrees
def test_the_operation_takes_starts_that_lie_anywhere_in_memory(unit):
    """A compiled graph may call it with any strides."""
    case = make_case((3, 9, *unit), reset="random", state=True)
    r, s, reset = case["r"], case["s"], case["reset"]
    starts = [case[name] for name in ("state", "x0")]
    apart = [each.transpose(0, -1).contiguous().transpose(0, -1) for each in starts]
    assert not any(each.is_contiguous() for each in apart)
    found = [torch.ops.latchwork.minmax_scan(r, s, state, reset, x0, "cpu") for state, x0 in (starts, apart)]
    assert_same_states(*found)
    grads = [
        torch.ops.latchwork.minmax_scan_backward(found[0], r, s, found[0], state, reset, x0, "cpu")
        for state, x0 in (starts, apart)
    ]
    for one, other in zip(*grads, strict=True):
        assert_same(one, other)


@each_backend
@both_degrees
@pytest.mark.parametrize("state", [False, True])
def test_one_row_of_x0_and_state_serves_all_of_the_batch(state, unit, backend):
    case = make_case((3, 9, *unit), reset="random", row=True, state=state)
    repeated = {
        **case,
        **{name: case[name].repeat(3, *[1] * len(unit)) for name in ("x0", "state") if case[name] is not None},
    }
    assert_same_states(run(case, backend), run(repeated, "reference"))
    assert_same_states(run(case, backend), run(case, "reference"))


@pytest.mark.parametrize("backend", ["reference", *BACKENDS])
@pytest.mark.parametrize("unit", [(5,), (3, 1), (3, 3)], ids=str)
@pytest.mark.parametrize("T", [3, 1030])
def test_a_zero_is_always_positive(T, unit, backend):
    for dtype in DTYPES:
        zeros = -torch.zeros(1, T, *unit, *unit[1:], dtype=dtype)
        s = zeros[..., 0] if len(unit) == 2 else zeros
        x = minmax_scan(zeros, s, s[:, 0], backend=backend)
        assert not x.signbit().any()


@pytest.mark.parametrize("backend", ["reference", *BACKENDS])
@pytest.mark.parametrize("place", ["r", "s", "x0", "state"])
@pytest.mark.parametrize("T", [6, 1030])
def test_a_nan_of_degree_one_stays_in_its_lane_to_the_end(T, place, backend):
    case = make_case((2, T, 5), state=place == "state")
    time = (T // 2,) if place in "rs" else ()
    case[place][(1, *time, 3)] = torch.nan
    expected = torch.zeros(2, T, 5, dtype=torch.bool)
    expected[1, T // 2 if time else 0 :, 3] = True
    assert torch.equal(run(case, backend).isnan(), expected)


@pytest.mark.parametrize("backend", ["reference", *BACKENDS])
@pytest.mark.parametrize("T", [6, 1030])
def test_a_nan_of_degree_n_enters_its_row_and_then_its_unit(T, backend):
    case = make_case((2, T, 3, 4))
    case["r"][1, T // 2, 2, 1, 3] = torch.nan
    expected = torch.zeros(2, T, 3, 4, dtype=torch.bool)
    expected[1, T // 2, 2, 1] = True
    expected[1, T // 2 + 1 :, 2] = True
    assert torch.equal(run(case, backend).isnan(), expected)


# What comes before a reset: its own numbers, or such as would show if anything of them came through.
BEFORE = {"numbers": None, "nan": torch.nan, "inf": torch.inf, "-inf": -torch.inf}


@pytest.mark.parametrize("backend", ["reference", *BACKENDS])
@both_degrees
@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("cut", [1, 8, pytest.param(1025, marks=pytest.mark.slow)])
def test_a_reset_lets_nothing_through(cut, before, unit, backend):
    T = cut + 5
    case = make_case((2, T, *unit), tied, state=True)
    case["reset"] = (torch.arange(T) == cut).expand(2, T)
    if (value := BEFORE[before]) is not None:
        for a in (case["r"][:, :cut], case["s"][:, :cut], case["state"]):
            a.fill_(value)
    alone = {"r": case["r"][:, cut:], "s": case["s"][:, cut:], "x0": case["x0"], "reset": None, "state": None}
    grad = torch.randint(-4, 5, case["s"].shape).float()
    grad[:, :cut] = 0
    x, found = run(case, backend, grad)
    x_alone, found_alone = run(alone, backend, grad[:, cut:])
    assert_same(x[:, cut:], x_alone)
    after = {name: found[name][:, cut:] for name in ("r", "s")}
    assert_same_gradients({**after, "x0": found["x0"]}, found_alone)
    if before != "nan":  # of which also a zero gradient is a NaN
        assert not any(a.any() for a in (found["r"][:, :cut], found["s"][:, :cut], found["state"]))
