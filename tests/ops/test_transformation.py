"""transformation_scan is a MinMax recurrence; its gradient is that of a loop, straight through the choice."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from latchwork import minmax_scan
from latchwork.ops.moves import transformation_as_minmax, transformation_scan

RESETS = ["never", "random", "everywhere", "first"]
SIZES = st.tuples(st.integers(0, 3), st.integers(0, 7), st.integers(0, 3), st.integers(1, 5))


def make_reset(kind, B, T):
    return {
        "never": None,
        "random": torch.rand(B, T) < 0.3,
        "everywhere": torch.ones(B, T, dtype=torch.bool),
        "first": torch.arange(T).expand(B, T) == 0,
    }[kind]


def make_case(B, T, U, N, *, carried, reset, dtype=torch.float64, layout="contiguous"):
    """weights, choice, x0 and the options; all floats ask for gradients. Small whole levels, so that they tie."""
    if layout == "time first":
        weights = torch.rand(T, B, U, N, N, dtype=dtype).transpose(0, 1)
        choice = torch.randint(N, (T, B, U, N)).transpose(0, 1)
    else:
        weights, choice = torch.rand(B, T, U, N, N, dtype=dtype), torch.randint(N, (B, T, U, N))
    x0, state = (torch.randint(4, size).to(dtype) for size in ((U, N), (B, U, N)))
    options = {"state": state if carried else None, "reset": make_reset(reset, B, T)}
    for each in (weights, x0, state):
        each.requires_grad_()
    return (weights, choice, x0), options


cases = given(
    sizes=SIZES,
    carried=st.booleans(),
    reset=st.sampled_from(RESETS),
    layout=st.sampled_from(["contiguous", "time first"]),
    seed=st.integers(0, 2**32 - 1),
)


@cases
def test_it_is_the_minmax_recurrence_bit_for_bit(sizes, carried, reset, layout, seed):
    torch.manual_seed(seed)
    (weights, choice, x0), options = make_case(*sizes, carried=carried, reset=reset, layout=layout)
    r, s = transformation_as_minmax(choice, torch.inf, x0.dtype)
    expected = minmax_scan(r, s, x0, **options)
    for backend in ("auto", "torch", "reference"):
        assert torch.equal(transformation_scan(weights, choice, x0, **options, backend=backend), expected)
    r, s = transformation_as_minmax(choice, 3.0, x0.dtype)  # the largest level there is
    assert torch.equal(minmax_scan(r, s, x0, **options), expected)


@cases
def test_the_gradient_is_that_of_the_definition(sizes, carried, reset, layout, seed):
    torch.manual_seed(seed)
    (weights, choice, x0), options = make_case(*sizes, carried=carried, reset=reset, layout=layout)
    leaves = [each for each in (weights, x0, options["state"]) if each is not None]
    grad = torch.randn(choice.shape, dtype=torch.float64)
    found, expected = (
        torch.autograd.grad(
            transformation_scan(weights, choice, x0, **options, backend=backend),
            leaves,
            grad,
            allow_unused=True,
            materialize_grads=True,
        )
        for backend in ("auto", "reference")
    )
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_a_weight_gets_its_level_times_what_comes_back_to_its_place():
    x0 = torch.tensor([[2.0, 3.0, 5.0]], requires_grad=True)
    choice = torch.tensor([[[[1, 1, 0]]]])  # 2 and 3 meet at the second place, none comes to the last
    weights = torch.full((1, 1, 1, 3, 3), 1 / 3, requires_grad=True)
    x = transformation_scan(weights, choice, x0)
    assert x.tolist() == [[[[5.0, 3.0, 0.0]]]]
    x.backward(torch.tensor([[[[1.0, 10.0, 100.0]]]]))
    assert weights.grad.tolist() == [[[[[2.0, 20.0, 200.0], [3.0, 30.0, 300.0], [5.0, 50.0, 500.0]]]]]
    assert x0.grad.tolist() == [[10.0, 10.0, 1.0]]


@given(seed=st.integers(0, 2**32 - 1))
def test_for_one_level_that_is_not_zero_its_gradient_is_that_of_the_minmax_recurrence(seed):
    torch.manual_seed(seed)
    (weights, choice, x0), _ = make_case(2, 6, 3, 4, carried=False, reset="never")
    x0 = (torch.arange(4) == torch.randint(4, (3, 1))).double().mul_(3).requires_grad_()
    r, s = transformation_as_minmax(choice, torch.inf, x0.dtype)
    grad = torch.randn(choice.shape, dtype=torch.float64)
    one, other = (
        torch.autograd.grad(x, x0, grad)[0] for x in (transformation_scan(weights, choice, x0), minmax_scan(r, s, x0))
    )
    torch.testing.assert_close(one[x0 > 0], other[x0 > 0], rtol=1e-12, atol=1e-12)


@given(cut=st.integers(0, 9), reset=st.sampled_from(RESETS), seed=st.integers(0, 2**32 - 1))
def test_two_chunks_are_the_whole_and_so_is_their_gradient(cut, reset, seed):
    torch.manual_seed(seed)
    (weights, choice, x0), options = make_case(2, 9, 2, 3, carried=False, reset=reset)
    when = options["reset"]
    whole = transformation_scan(weights, choice, x0, reset=when)
    state, pieces = None, []
    for piece in (slice(None, cut), slice(cut, None)):
        part = None if when is None else when[:, piece]
        pieces.append(transformation_scan(weights[:, piece], choice[:, piece], x0, reset=part, state=state))
        state = pieces[-1][:, -1] if pieces[-1].shape[1] else state
    joined = torch.cat(pieces, 1)
    assert torch.equal(joined, whole)
    grad = torch.randn_like(whole)
    one, other = (torch.autograd.grad(each, [weights, x0], grad) for each in (joined, whole))
    for a, b in zip(one, other, strict=True):
        torch.testing.assert_close(a, b)


def test_nothing_crosses_a_reset():
    (weights, choice, _), options = make_case(1, 6, 2, 3, carried=True, reset="never")
    x0 = torch.ones(2, 3, dtype=torch.float64, requires_grad=True)
    when = torch.arange(6).unsqueeze(0) == 3
    transformation_scan(weights, choice, x0, state=options["state"], reset=when)[:, 3:].sum().backward()
    assert weights.grad[:, :3].abs().max() == 0
    assert options["state"].grad.abs().max() == 0
    assert x0.grad.abs().min() > 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_every_dtype_moves_levels_exactly_and_writes_no_minus_zero(dtype):
    choice = torch.tensor([1, 2, 0]).expand(1, 4, 1, 3)
    x0 = torch.tensor([[-0.0, 0.1, 7.0]], dtype=dtype)
    x = transformation_scan(torch.ones(1, 4, 1, 3, 3, dtype=dtype), choice, x0)
    assert x.dtype == dtype
    assert torch.equal(x[0, 2, 0], x0[0])
    assert not torch.signbit(x[x == 0]).any()


def test_a_nan_stays_where_it_is_sent():
    choice = torch.tensor([[[[2, 2, 1]], [[0, 1, 2]]]])
    x = transformation_scan(torch.ones(1, 2, 1, 3, 3), choice, torch.tensor([[torch.nan, 5.0, 1.0]]))
    assert x[..., 2].isnan().all()
    assert x[0, :, 0, :2].tolist() == [[0.0, 1.0], [0.0, 1.0]]


def test_it_compiles_without_a_break():
    (weights, choice, x0), options = make_case(2, 5, 2, 3, carried=False, reset="random")
    start = x0.expand(2, 2, 3)
    torch.library.opcheck(
        torch.ops.latchwork.move_scan,
        (weights, choice, start, None, options["reset"], start, True, "torch"),
        test_utils=("test_schema", "test_faketensor"),
    )
    compiled = torch.compile(lambda *a: transformation_scan(*a, **options), fullgraph=True, backend="aot_eager")
    results = [run(weights, choice, x0) for run in (compiled, lambda *a: transformation_scan(*a, **options))]
    assert torch.equal(*results)
    one, other = (torch.autograd.grad(each.sum(), [weights, x0]) for each in results)
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_bad_input_names_its_argument():
    (weights, choice, x0), _ = make_case(2, 3, 2, 3, carried=False, reset="never")
    for error, match, arguments, options in [
        (ValueError, r"choice must be \(B, T, U, N\)", (weights, choice[0], x0), {}),
        (TypeError, "choice must be int64; got torch.int32", (weights, choice.int(), x0), {}),
        (ValueError, "choice must be at least 0 and less than 3; got 3 to 3", (weights, choice * 0 + 3, x0), {}),
        (ValueError, r"weights must be .*got \(2, 3, 2, 3, 2\)", (weights[..., :2], choice, x0), {}),
        (TypeError, "weights must be float32.*got torch.int64", (weights.long(), choice, x0), {}),
        (TypeError, "x0 must have the dtype of weights, .*got torch.float16", (weights, choice, x0.half()), {}),
        (ValueError, r"x0 must be .*got \(3,\)", (weights, choice, x0[0]), {}),
        (ValueError, "x0 must be at least 0; got -1.0", (weights, choice, x0 * 0 - 1), {}),
        (ValueError, r"state must be .*got \(1, 2, 3\)", (weights, choice, x0), {"state": x0[None]}),
        (ValueError, "state must be at least 0; got -2.0", (weights, choice, x0), {"state": x0 * 0 - 2}),
        (ValueError, "reset must be bool", (weights, choice, x0), {"reset": torch.zeros(2, 3)}),
        (ValueError, "backend 'cuda' is unknown", (weights, choice, x0), {"backend": "cuda"}),
    ]:
        with pytest.raises(error, match=match):
            transformation_scan(*arguments, **options)
    (gradient,) = torch.autograd.grad(transformation_scan(weights, choice, x0).sum(), weights, create_graph=True)
    with pytest.raises(NotImplementedError, match="no second derivative"):
        gradient.sum().backward()
