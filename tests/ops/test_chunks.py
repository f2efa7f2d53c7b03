"""One chunk equals many: in the C++ kernel, over threads, in a stream and step by step."""

import os
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scan_cases import (
    BACKENDS,
    DRAWS,
    DTYPES,
    assert_same,
    assert_same_gradients,
    assert_same_states,
    continuous,
    extreme,
    held,
    inner,
    make_case,
    run,
    tied,
    with_nan,
)

from latchwork import minmax_scan, minmax_step
from latchwork.ops import dispatch
from latchwork.ops.algebra import apply, collapse
from latchwork.ops.cpu import scan as cpu
from latchwork.ops.cpu.kernel import isa
from reset_cases import make_reset

CHUNKS = [1, 2, 3, 7, 64]
NAMES = ("r", "s", "state", "x0")
both_degrees = pytest.mark.parametrize("unit", [(5,), (3, 2)], ids=["degree one", "degree n"])


def kernel(arguments, chunk, grad):
    """The states and gradients of the C++ kernel, time cut into chunks of so many steps."""
    r, s, state, reset, x0 = arguments
    x = cpu.forward(r, s, state, reset, x0, chunk=chunk)
    found = dict(zip(NAMES, cpu.backward(grad, r, s, x, state, reset, x0, chunk=chunk), strict=True))
    return x, {name: a for name, a in found.items() if a is not None}


def assert_chunks_do_not_matter(case, chunks, threads=1, grad=None):
    arguments = inner(case)
    grad = torch.randn_like(case["s"]) if grad is None else grad
    torch.set_num_threads(1)
    x, found = kernel(arguments, case["s"].shape[1], grad)
    torch.set_num_threads(threads)
    for chunk in chunks:
        x_chunked, found_chunked = kernel(arguments, chunk, grad)
        assert_same_states(x_chunked, x)
        assert_same_gradients(found_chunked, found)
    return x, found


@both_degrees
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_chunks_of_any_length_equal_the_whole(dtype, unit):
    for T, draw, reset in product([1, 65, 130], [*DRAWS, held], ["never", "random", "first"]):
        assert_chunks_do_not_matter(make_case((2, T, *unit), draw, dtype, reset=reset, state=True), CHUNKS)


@pytest.mark.parametrize(
    "shape", [(1, 500, 40), (5, 200, 17), (1, 20, 1000), (1, 200, 30, 3), (2, 20, 130, 2)], ids=str
)
def test_chunks_on_any_number_of_threads_equal_the_whole(shape):
    # Big enough for the kernel to use its threads: 2^14 numbers.
    for draw, reset, threads in product([tied, with_nan, held], ["never", "random"], [2, 3]):
        case = make_case(shape, draw, reset=reset)
        x, _ = assert_chunks_do_not_matter(case, [3, 64, shape[1]], threads)
        assert_same_states(x, run(case, "torch"))


@both_degrees
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("draw", [continuous, held])
def test_a_sequence_that_the_kernel_cuts_by_itself_equals_the_whole(draw, threads, unit):
    case = make_case((1, 9000, *unit), draw)
    x, found = assert_chunks_do_not_matter(case, [0], threads)
    case["reset"] = (torch.arange(9000) == 4000).expand(1, 9000)
    assert_chunks_do_not_matter(case, [0], threads)
    if draw is held:
        assert_same(x[:, -1], case["x0"])
        assert found["state"].count_nonzero() == found["state"].numel()


@both_degrees
def test_latches_held_in_some_lanes_only_do_not_disturb_the_others(unit):
    case = make_case((3, 70, *unit), tied)
    latched = torch.rand(3, 1, *unit) < 0.5
    case["s"] = torch.where(latched, -9.0, case["s"])
    case["r"] = torch.where(latched if len(unit) == 1 else latched.unsqueeze(-1), 9.0, case["r"])
    assert_chunks_do_not_matter(case, CHUNKS)


@both_degrees
@given(data=st.data())
def test_a_nan_anywhere_reaches_what_it_reaches_in_the_loop(unit, data):
    draw = data.draw(st.sampled_from([continuous, tied, extreme, held]))
    torch.manual_seed(data.draw(st.integers(0, 2**32 - 1)))
    case = make_case((2, 20, *unit), draw, state=True)
    case["reset"] = make_reset(data.draw(st.sampled_from(["never", "random"])), 2, 20)
    for name in data.draw(st.lists(st.sampled_from(["r", "s", "x0", "state"]), min_size=1, max_size=3)):
        case[name][tuple(data.draw(st.integers(0, size - 1)) for size in case[name].shape)] = torch.nan
    chunk, grad = data.draw(st.sampled_from([1, 2, 3, 7, 19])), torch.randn_like(case["s"])
    x, found = kernel(inner(case), chunk, grad)
    x_loop, found_loop = run(case, "reference", grad)
    assert_same_states(x, x_loop)
    if "x0" not in found:
        found["x0"] = torch.zeros_like(found["state"])
    for name in NAMES:
        torch.testing.assert_close(found[name], found_loop[name], equal_nan=True)


@both_degrees
@pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan, 3e38])
def test_a_gradient_that_is_not_finite_goes_through_chunks_as_through_the_whole(value, unit):
    case = make_case((2, 70, *unit), held)
    grad = torch.randn_like(case["s"])
    grad[0, 33:36], grad[1, 60] = value, -value
    assert_chunks_do_not_matter(case, CHUNKS, grad=grad)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "shape", [(2, 1, 5), (3, 9, 73), (1, 70, 300), (2, 1, 1, 1), (3, 9, 9, 5), (1, 40, 130, 2)], ids=str
)
def test_the_composed_step_maps_every_state_where_the_loop_takes_it(shape, backend):
    for draw, dtype in product(DRAWS, DTYPES):
        r, s, state, _, _ = inner(make_case(shape, draw, dtype, state=True))
        whole = dispatch.BACKENDS["scan"][backend].compose(r, s, None, None)
        assert [a.shape for a in whole] == [r.shape[:1] + r.shape[2:], s.shape[:1] + s.shape[2:]]
        for start in (state, draw(*state.shape, dtype=dtype), torch.full_like(state, torch.inf)):
            after = apply(*whole, start) + 0.0
            assert_same(after, apply(*collapse(r, s), start) + 0.0)
            assert_same(after, minmax_scan(r, s, start, backend="reference")[:, -1])


@pytest.mark.parametrize("backend", BACKENDS)
@both_degrees
def test_no_steps_compose_to_one_that_changes_nothing(unit, backend):
    r, s, state, _, _ = inner(make_case((2, 0, *unit), extreme))
    assert_same(apply(*dispatch.BACKENDS["scan"][backend].compose(r, s, None, None), state) + 0.0, state + 0.0)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("draw", [continuous, tied, extreme])
@pytest.mark.parametrize("shape", [(3, 9, 73), (3, 9, 9, 5)], ids=str)
def test_a_reset_makes_the_composed_step_constant(shape, draw, backend):
    r, s, state, reset, x0 = inner(make_case(shape, draw, reset="random", state=True))
    reset[:, 4] = True
    r[:, :4], s[:, :4] = torch.nan, torch.nan
    whole = dispatch.BACKENDS["scan"][backend].compose(r, s, reset, x0)
    expected = minmax_scan(r, s, x0, reset=reset, state=state, backend="reference")[:, -1]
    for start in (state, torch.full_like(state, torch.inf), torch.full_like(state, -torch.inf)):
        assert_same(apply(*whole, start) + 0.0, expected)


@pytest.mark.parametrize("backend", BACKENDS)
@both_degrees
@given(cuts=st.lists(st.integers(0, 30), max_size=6), seed=st.integers(0, 2**32 - 1), packed=st.booleans())
def test_a_stream_cut_anywhere_equals_the_whole(backend, unit, cuts, seed, packed):
    torch.manual_seed(seed)
    case = make_case((2, 30, *unit), tied, reset="random" if packed else "never", state=True)
    grad = torch.randint(-4, 5, case["s"].shape) * 2.0**10
    leaves = {name: case[name].clone().requires_grad_() for name in ("r", "s", "x0", "state")}
    state, pieces = leaves["state"], []
    for begin, end in zip([0, *sorted(cuts)], [*sorted(cuts), 30], strict=True):
        piece = {name: a[:, begin:end] for name, a in leaves.items() if name in "rs"}
        reset = case["reset"][:, begin:end] if packed else None
        pieces.append(minmax_scan(**piece, x0=leaves["x0"], reset=reset, state=state, backend=backend))
        state = pieces[-1][:, -1] if end > begin else state
    x = torch.cat(pieces, 1)
    found = torch.autograd.grad(x, list(leaves.values()), grad, allow_unused=True, materialize_grads=True)
    x_whole, found_whole = run(case, backend, grad)
    assert_same_states(x.detach(), x_whole)
    for name, a in zip(leaves, found, strict=True):
        exact = name != "x0" and len(unit) == 1  # the gradient of x0 is summed piece by piece
        torch.testing.assert_close(a, found_whole[name], **({"rtol": 0, "atol": 0} if exact else {}))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@both_degrees
def test_steps_repeated_equal_the_scan(unit, dtype):
    for draw in DRAWS:
        case = make_case((2, 12, *unit), draw, dtype, row=True)
        x, states = case["x0"], run(case, "reference")
        for t in range(12):
            x = minmax_step(case["r"][:, t], case["s"][:, t], x)
            assert_same_states(x, states[:, t])


@both_degrees
@pytest.mark.parametrize("draw", [continuous, tied])
def test_steps_repeated_have_the_gradients_of_the_scan(draw, unit):
    case = make_case((2, 12, *unit), draw, torch.float64)
    leaves = {name: case[name].clone().requires_grad_() for name in ("r", "s", "x0")}
    states = [leaves["x0"]]
    for r, s in zip(leaves["r"].unbind(1), leaves["s"].unbind(1), strict=True):
        states.append(minmax_step(r, s, states[-1]))
    grad = torch.randn_like(case["s"])
    found = torch.autograd.grad(torch.stack(states[1:], 1), list(leaves.values()), grad)
    expected = run(case, "reference", grad)[1]
    for name, a in zip(leaves, found, strict=True):
        assert_same(a, expected[name])


HERE = Path(__file__).parent
INSTRUCTION_SETS = ["baseline", "avx2", "avx512"]  # the kernel takes the last that the processor has
ON_ANOTHER_INSTRUCTION_SET = """
import sys, pytest
from latchwork.ops.cpu.kernel import isa
assert isa() == sys.argv[1], isa()
sys.exit(pytest.main(sys.argv[2:]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", INSTRUCTION_SETS)
def test_the_kernel_is_right_on_every_instruction_set(name):
    if INSTRUCTION_SETS.index(name) >= INSTRUCTION_SETS.index(isa()):
        pytest.skip(f"all tests run with {isa()}, and there is nothing wider here")
    chosen = "every_width or sums_are_exact or chunks_of_any_length"
    files = [str(HERE / file) for file in ("test_gradient.py", "test_chunks.py")]
    command = [sys.executable, "-c", ON_ANOTHER_INSTRUCTION_SET, name, "-p", "no:cacheprovider", "-k", chosen, *files]
    environment = {**os.environ, "LATCHWORK_ISA": name, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
