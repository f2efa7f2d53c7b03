"""Every backend of selection_scan and transformation_scan gives the same bits, in what it returns and in gradients."""

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from move_cases import FORMS, SPECIAL, make_problem
from scan_cases import DTYPES, assert_same, assert_same_states

from latchwork.ops import dispatch
from latchwork.ops.cpu import kernel
from latchwork.ops.cpu import moves as moves_cpu
from latchwork.ops.moves import selection_scan, transformation_scan
from latchwork.ops.torch import moves as moves_torch

needs_kernel = pytest.mark.skipif(kernel.MISSING is not None, reason=str(kernel.MISSING))


def strided(values, layout):
    """The same numbers, laid out otherwise over batch and time."""
    if layout == "time first":
        return values.transpose(0, 1).contiguous().transpose(0, 1)
    if layout == "padded":
        return torch.cat([values, values], 2)[:, :, : values.shape[2]]
    return values


def compare(backend, arguments, grad):
    choice, state, s, reset, x0, sends = arguments
    x = backend.forward(*arguments)
    assert_same_states(x, moves_torch.forward(*arguments))
    rest = (grad, choice, x, state, s, reset, x0, sends)
    for one, other in zip(backend.backward(*rest), moves_torch.backward(*rest), strict=True):
        assert_same_or_none(one, other)


def assert_same_or_none(one, other):
    assert (one is None) == (other is None)
    if one is not None:
        assert_same(one, other)


@needs_kernel
@given(
    sizes=st.tuples(st.integers(0, 3), st.integers(0, 6), st.integers(0, 20), st.integers(1, 11)),
    form=st.sampled_from(FORMS),
    reset=st.sampled_from([None, 0.0, 0.3, 1.0]),
    dtype=st.sampled_from(DTYPES),
    layout=st.sampled_from(["contiguous", "time first", "padded"]),
    special=st.booleans(),
    threads=st.integers(1, 3),
    seed=st.integers(0, 2**32 - 1),
)
@example((1, 40, 100, 5), "taking", 0.1, torch.float32, "contiguous", False, 3, 0)  # large enough for threads
@example((5, 30, 37, 3), "taking or own", 0.1, torch.float32, "contiguous", False, 3, 0)
@example((2, 20, 33, 9), "sending", 0.1, torch.float32, "contiguous", False, 3, 0)
def test_the_kernel_gives_the_bits_of_torch(sizes, form, reset, dtype, layout, special, threads, seed):
    torch.manual_seed(seed)
    torch.set_num_threads(threads)
    choice, *rest = make_problem(*sizes, form=form, reset=reset, dtype=dtype, special=special)
    grad = torch.tensor(SPECIAL)[torch.randint(len(SPECIAL), choice.shape)] if special else torch.randn(choice.shape)
    compare(moves_cpu, (strided(choice, layout), *rest), strided(grad.to(dtype), layout))


@pytest.mark.parametrize("form", FORMS)
def test_halves_are_summed_in_float32(form):
    torch.manual_seed(0)
    choice, state, s, reset, x0, sends = make_problem(1, 400, 2, 3, form=form, reset=0.05, dtype=torch.bfloat16)
    grad = torch.randn(choice.shape).bfloat16()
    x = moves_torch.forward(choice, state, s, reset, x0, sends)
    given_wide = (a.float() if a is not None else None for a in (x, state, s))
    wide = moves_torch.backward(grad.float(), choice, *given_wide, reset, x0.float(), sends)
    for backend in dispatch.BACKENDS["moves"].values():
        if backend.unfit(state) is None:
            found = backend.backward(grad, choice, x, state, s, reset, x0, sends)
            for one, other in zip(found, wide, strict=True):
                assert_same_or_none(one, None if other is None else other.bfloat16())


@pytest.mark.parametrize("scan", [selection_scan, transformation_scan])
def test_what_is_out_of_range_is_an_error_also_when_compiled(scan):
    weights, x0 = torch.rand(1, 2, 1, 3, 3), torch.ones(1, 3)
    for wrong in (3, -1):
        choice = torch.tensor([[[[0, 1, 2]], [[0, wrong, 2]]]])
        for backend in ("auto", "reference", *dispatch.BACKENDS["moves"]):
            if backend in dispatch.BACKENDS["moves"] and dispatch.BACKENDS["moves"][backend].unfit(weights):
                continue
            with pytest.raises(ValueError, match="choice must be at least 0 and less than 3; got"):
                scan(weights, choice, x0, backend=backend)
        compiled = torch.compile(scan, backend="aot_eager", fullgraph=True)
        with pytest.raises(ValueError, match="choice must be at least 0"):
            compiled(weights, choice, x0)


@pytest.mark.parametrize("scan", [selection_scan, transformation_scan])
def test_a_backend_that_cannot_run_says_why(scan, monkeypatch):
    weights, choice, x0 = torch.rand(1, 2, 1, 3, 3), torch.zeros(1, 2, 1, 3, dtype=torch.int64), torch.ones(1, 3)
    monkeypatch.setattr(kernel, "MISSING", "it was not built")
    with pytest.raises(ValueError, match="backend 'cpu' cannot run: it was not built"):
        scan(weights, choice, x0, backend="cpu")
    assert dispatch.choose("moves", "auto", weights) == "torch"
    assert "not on the CPU" in moves_cpu.unfit(weights.to("meta"))
    with pytest.raises(ValueError, match="choice must be on the device of weights, cpu; got meta"):
        scan(weights, choice.to("meta"), x0)


def test_an_expanded_gradient_is_read_where_it_is():
    weights, x0 = torch.rand(2, 3, 2, 3, 3, requires_grad=True), torch.rand(2, 3)
    choice = torch.randint(3, (2, 3, 2, 3))
    found = []
    for backend in ("auto", "torch"):
        x = selection_scan(weights, choice, x0, backend=backend)
        found.append(torch.autograd.grad(x.sum(), weights)[0])
    assert torch.equal(*found)
