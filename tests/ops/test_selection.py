"""selection_scan is a MinMax recurrence; its gradient is that of a loop, straight through the choice."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from latchwork import minmax_scan
from latchwork.ops.moves import selection_as_minmax, selection_scan

RESETS = ["never", "random", "everywhere", "first"]
SIZES = st.tuples(st.integers(0, 3), st.integers(0, 7), st.integers(0, 3), st.integers(1, 5))


def make_reset(kind, B, T):
    return {
        "never": None,
        "random": torch.rand(B, T) < 0.3,
        "everywhere": torch.ones(B, T, dtype=torch.bool),
        "first": torch.arange(T).expand(B, T) == 0,
    }[kind]


def make_case(B, T, U, N, *, taking, carried, reset, dtype=torch.float64, layout="contiguous"):
    """weights, choice, x0 and the options; all floats ask for gradients."""
    K = N + taking
    if layout == "time first":
        weights = torch.rand(T, B, U, N, K, dtype=dtype).transpose(0, 1)
        choice = torch.randint(K, (T, B, U, N)).transpose(0, 1)
    else:
        weights, choice = torch.rand(B, T, U, N, K, dtype=dtype), torch.randint(K, (B, T, U, N))
    x0, s, state = (torch.randn(size, dtype=dtype) for size in ((U, N), (U, N), (B, U, N)))
    options = {"s": s if taking else None, "state": state if carried else None, "reset": make_reset(reset, B, T)}
    for each in (weights, x0, s, state):
        each.requires_grad_()
    return (weights, choice, x0), options


cases = given(
    sizes=SIZES,
    taking=st.booleans(),
    carried=st.booleans(),
    reset=st.sampled_from(RESETS),
    layout=st.sampled_from(["contiguous", "time first"]),
    seed=st.integers(0, 2**32 - 1),
)


@cases
def test_it_is_the_minmax_recurrence_bit_for_bit(sizes, taking, carried, reset, layout, seed):
    torch.manual_seed(seed)
    (weights, choice, x0), options = make_case(*sizes, taking=taking, carried=carried, reset=reset, layout=layout)
    r, s = selection_as_minmax(choice, options["s"], -torch.inf, torch.inf, x0.dtype)
    state = options["state"]
    expected = minmax_scan(r, s, x0, state=state, reset=options["reset"])
    for backend in ("auto", "torch", "reference"):
        assert torch.equal(selection_scan(weights, choice, x0, **options, backend=backend), expected)
    if sizes[2] == 0:
        return
    values = torch.cat([each.detach().reshape(-1) for each in (x0, options["s"], state) if each is not None])
    r, s = selection_as_minmax(choice, options["s"], values.min().item(), values.max().item(), x0.dtype)
    assert torch.equal(minmax_scan(r, s, x0, state=state, reset=options["reset"]), expected)


@cases
def test_the_gradient_is_that_of_the_definition(sizes, taking, carried, reset, layout, seed):
    torch.manual_seed(seed)
    (weights, choice, x0), options = make_case(*sizes, taking=taking, carried=carried, reset=reset, layout=layout)
    leaves = [each for each in (weights, x0, options["s"], options["state"]) if each is not None]
    grad = torch.randn(choice.shape, dtype=torch.float64)
    found, expected = (
        torch.autograd.grad(
            selection_scan(weights, choice, x0, **options, backend=backend),
            leaves,
            grad,
            allow_unused=True,
            materialize_grads=True,
        )
        for backend in ("auto", "reference")
    )
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_a_weight_gets_what_comes_back_to_its_row_times_what_it_would_have_taken():
    x0 = torch.tensor([[2.0, 3.0]])
    choice = torch.tensor([[[[1, 2]]]])  # the first row takes 3, the second 7
    weights = torch.full((1, 1, 1, 2, 3), 1 / 3, requires_grad=True)
    s = torch.tensor([[5.0, 7.0]], requires_grad=True)
    x = selection_scan(weights, choice, x0, s=s)
    assert x.tolist() == [[[[3.0, 7.0]]]]
    x.backward(torch.tensor([[[[10.0, 100.0]]]]))
    assert weights.grad.tolist() == [[[[[20.0, 30.0, 50.0], [200.0, 300.0, 700.0]]]]]
    assert s.grad.tolist() == [[0.0, 100.0]]


@given(cut=st.integers(0, 9), reset=st.sampled_from(RESETS), seed=st.integers(0, 2**32 - 1))
def test_two_chunks_are_the_whole_and_so_is_their_gradient(cut, reset, seed):
    torch.manual_seed(seed)
    (weights, choice, x0), options = make_case(2, 9, 2, 3, taking=True, carried=False, reset=reset)
    when, s = options["reset"], options["s"]
    whole = selection_scan(weights, choice, x0, s=s, reset=when)
    state, pieces = None, []
    for piece in (slice(None, cut), slice(cut, None)):
        part = None if when is None else when[:, piece]
        pieces.append(selection_scan(weights[:, piece], choice[:, piece], x0, s=s, reset=part, state=state))
        state = pieces[-1][:, -1] if pieces[-1].shape[1] else state
    joined = torch.cat(pieces, 1)
    assert torch.equal(joined, whole)
    grad = torch.randn_like(whole)
    one, other = (torch.autograd.grad(each, [weights, x0, s], grad) for each in (joined, whole))
    for a, b in zip(one, other, strict=True):
        torch.testing.assert_close(a, b)


def test_nothing_crosses_a_reset():
    (weights, choice, x0), options = make_case(1, 6, 2, 3, taking=True, carried=True, reset="never")
    when = torch.arange(6).unsqueeze(0) == 3
    selection_scan(weights, choice, x0, s=options["s"], state=options["state"], reset=when)[:, 3:].sum().backward()
    assert weights.grad[:, :3].abs().max() == 0
    assert options["state"].grad.abs().max() == 0
    assert x0.grad.abs().max() > 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_every_dtype_moves_levels_exactly_and_writes_no_minus_zero(dtype):
    choice = torch.tensor([1, 2, 0]).expand(1, 4, 1, 3)
    x0 = torch.tensor([[-0.0, 0.1, -7.0]], dtype=dtype)
    x = selection_scan(torch.ones(1, 4, 1, 3, 3, dtype=dtype), choice, x0)
    assert x.dtype == dtype
    assert torch.equal(x[0, 2, 0], x0[0])
    assert not torch.signbit(x[x == 0]).any()


def test_it_compiles_without_a_break():
    (weights, choice, x0), options = make_case(2, 5, 2, 3, taking=True, carried=False, reset="random")
    start = x0.expand(2, 2, 3)
    torch.library.opcheck(
        torch.ops.latchwork.move_scan,
        (weights, choice, start, options["s"].expand(2, 2, 3), options["reset"], start, False, "torch"),
        test_utils=("test_schema", "test_faketensor"),
    )
    compiled = torch.compile(lambda *a: selection_scan(*a, **options), fullgraph=True, backend="aot_eager")
    results = [run(weights, choice, x0) for run in (compiled, lambda *a: selection_scan(*a, **options))]
    assert torch.equal(*results)
    one, other = (torch.autograd.grad(each.sum(), [weights, x0, options["s"]]) for each in results)
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_bad_input_names_its_argument():
    (weights, choice, x0), _ = make_case(2, 3, 2, 3, taking=False, carried=False, reset="never")
    s = torch.zeros(2, 3, dtype=weights.dtype)
    for error, match, arguments, options in [
        (ValueError, r"choice must be \(B, T, U, N\)", (weights, choice[0], x0), {}),
        (TypeError, "choice must be int64; got torch.int32", (weights, choice.int(), x0), {}),
        (ValueError, "choice must be at least 0 and less than 3; got 3 to 3", (weights, choice * 0 + 3, x0), {}),
        (ValueError, r"weights must be .*K being N.*got \(2, 3, 2, 3, 3\)", (weights, choice, x0), {"s": s}),
        (TypeError, "weights must be float32.*got torch.int64", (weights.long(), choice, x0), {}),
        (TypeError, "s must have the dtype of weights, .*got torch.float16", (weights, choice, x0), {"s": s.half()}),
        (TypeError, "state must have the dtype of weights", (weights, choice, x0), {"state": x0.half()}),
        (ValueError, r"s must be \(U, N\) = \(2, 3\)", (weights, choice, x0), {"s": s[0]}),
        (ValueError, r"x0 must be .*got \(3,\)", (weights, choice, x0[0]), {}),
        (ValueError, r"state must be .*got \(1, 2, 3\)", (weights, choice, x0), {"state": x0[None]}),
        (ValueError, "reset must be bool", (weights, choice, x0), {"reset": torch.zeros(2, 3)}),
        (ValueError, "backend 'cuda' is unknown", (weights, choice, x0), {"backend": "cuda"}),
    ]:
        with pytest.raises(error, match=match):
            selection_scan(*arguments, **options)
    (gradient,) = torch.autograd.grad(selection_scan(weights, choice, x0).sum(), weights, create_graph=True)
    with pytest.raises(NotImplementedError, match="no second derivative"):
        gradient.sum().backward()
