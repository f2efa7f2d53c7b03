"""The fused choice is softmax and argmax."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from latchwork.ops.choice import choose_rows
from latchwork.ops.cpu import kernel

pytestmark = pytest.mark.skipif(kernel.MISSING is not None, reason=str(kernel.MISSING))
TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-14, torch.bfloat16: 1e-2, torch.float16: 2e-3}


@given(
    leading=st.sampled_from([(), (3,), (2, 3), (0, 2), (2, 3, 5), (1, 0, 4)]),
    N=st.integers(0, 9),
    K=st.integers(1, 11),
    with_own=st.booleans(),
    sliced=st.booleans(),
    temperature=st.sampled_from([1.0, 0.7, 4.5]),
    dtype=st.sampled_from(list(TOLERANCE)),
    seed=st.integers(0, 2**32 - 1),
)
def test_it_is_softmax_and_argmax_and_so_is_its_gradient(leading, N, K, with_own, sliced, temperature, dtype, seed):
    torch.manual_seed(seed)
    units = leading[-1] if leading else 1  # as a layer gives them: a slice of what drives it
    whole = torch.randn(*leading[:-1], units * N * (K + 1) + 3, dtype=torch.float64).mul_(5).to(dtype)
    whole = whole if sliced else whole[..., : units * N * (K + 1)].contiguous()
    logits = whole[..., : units * N * K].view(*leading[:-1], units, N, K).requires_grad_()
    own = whole[..., units * N * K : units * N * (K + 1)].view(*leading[:-1], units, N).requires_grad_()
    own = own if with_own else None
    (weights, choice), (expected, place) = (
        choose_rows(logits, own, temperature=temperature, backend=each) for each in ("cpu", "torch")
    )
    tolerance = TOLERANCE[dtype]
    torch.testing.assert_close(weights, expected, rtol=tolerance, atol=tolerance)
    assert choice.dtype == torch.int64
    assert choice.shape == place.shape
    values = logits if own is None else torch.cat([logits, own.unsqueeze(-1)], -1)  # of equal logits either may be it
    assert torch.equal(*(values.gather(-1, each.unsqueeze(-1)) for each in (choice, place)))
    grad, leaves = torch.randn_like(weights), [logits] if own is None else [logits, own]
    found, wanted = (torch.autograd.grad(each, leaves, grad) for each in (weights, expected))
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=10 * tolerance)


def test_extreme_logits_choose_as_torch_does():
    inf, nan = torch.inf, torch.nan
    rows = [[0.0, -inf, 1.0], [1e38, -1e38, 0.0], [-1e30, -1e30, -200.0], [0.0, nan, inf], [nan, 1.0, nan]]
    logits = torch.tensor(rows)
    (weights, choice), (expected, place) = (choose_rows(logits, backend=each) for each in ("cpu", "torch"))
    assert torch.equal(choice, place)
    torch.testing.assert_close(weights, expected, equal_nan=True)
    assert weights[0, 1] == 0


def test_more_threads_give_the_same_bits():
    torch.manual_seed(0)
    logits, threads, found = torch.randn(50, 7, 20, 5, 5), torch.get_num_threads(), []
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            found.append(choose_rows(logits, backend="cpu"))
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_it_compiles_without_a_break():
    logits, own = torch.randn(2, 3, 2, 4, 4, requires_grad=True), torch.randn(2, 3, 2, 4, requires_grad=True)
    torch.library.opcheck(
        torch.ops.latchwork.choose_rows, (logits, own, 2.0), test_utils=("test_schema", "test_faketensor")
    )
    compiled = torch.compile(choose_rows, fullgraph=True, backend="aot_eager")
    results = [run(logits, own) for run in (compiled, choose_rows)]
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
    one, other = (torch.autograd.grad(each[0].square().sum(), [logits, own]) for each in results)
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_bad_input_names_its_argument(monkeypatch):
    logits = torch.randn(2, 3, 4, requires_grad=True)
    for error, match, arguments, options in [
        (TypeError, "logits must be float32.*got torch.int64", (logits.long(),), {}),
        (ValueError, r"logits must be \(..., N, K\) with K >= 1; got \(4,\)", (logits[0, 0],), {}),
        (ValueError, r"own must be .* = \(2, 3\) .*got \(3,\)", (logits, logits[0, :, 0]), {}),
        (ValueError, "temperature must be positive and finite; got 0", (logits,), {"temperature": 0}),
        (
            ValueError,
            "backend 'cuda' is unknown; there are auto, reference, torch, cpu, triton",
            (logits,),
            {"backend": "cuda"},
        ),
        (ValueError, "backend 'cpu' cannot run: logits is on meta", (logits.to("meta"),), {"backend": "cpu"}),
    ]:
        with pytest.raises(error, match=match):
            choose_rows(*arguments, **options)
    (gradient,) = torch.autograd.grad(choose_rows(logits)[0].square().sum(), logits, create_graph=True)
    with pytest.raises(NotImplementedError, match="no second derivative"):
        gradient.sum().backward()
    monkeypatch.setattr(kernel, "MISSING", "it was not built")
    with pytest.raises(ValueError, match="backend 'cpu' cannot run: it was not built"):
        choose_rows(logits, backend="cpu")
    assert choose_rows(logits)[0].requires_grad
