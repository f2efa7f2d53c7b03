"""selection_scan and transformation_scan are MinMax recurrences; their gradient is straight through the choice."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from move_cases import FORMS

from latchwork import minmax_scan
from latchwork.ops.moves import (
    selection_as_minmax,
    selection_scan,
    transformation_as_minmax,
    transformation_scan,
)
from reset_cases import RESETS, make_reset

SIZES = st.tuples(st.integers(0, 3), st.integers(0, 7), st.integers(0, 3), st.integers(1, 5))
LARGEST = 3.0
each_scan = pytest.mark.parametrize("scan", [selection_scan, transformation_scan])


def make_case(form, B, T, U, N, *, carried=False, reset="never", layout="contiguous"):
    """The scan, its weights, choice and x0, and its options. All floats are float64 and ask for gradients.

    Small whole levels, so that those that are sent to one place tie.
    """
    K = N + (form == "taking or own")
    weights, choice = torch.rand(B, T, U, N, K, dtype=torch.float64), torch.randint(K, (B, T, U, N))
    if layout == "time first":
        weights, choice = (each.transpose(0, 1).contiguous().transpose(0, 1) for each in (weights, choice))
    x0, s, state = (torch.randint(int(LARGEST) + 1, size).double() for size in ((U, N), (U, N), (B, U, N)))
    if form != "sending":
        x0, s, state = -x0, -s, -state
    options = {"state": state if carried else None, "reset": make_reset(reset, B, T)}
    if form == "taking or own":
        options["s"] = s
    for each in (weights, x0, s, state):
        each.requires_grad_()
    return transformation_scan if form == "sending" else selection_scan, (weights, choice, x0), options


def as_minmax(form, choice, options, infinite):
    if form == "sending":
        return transformation_as_minmax(choice, torch.inf if infinite else LARGEST, torch.float64)
    bounds = (-torch.inf, torch.inf) if infinite else (-LARGEST, 0.0)
    return selection_as_minmax(choice, options.get("s"), *bounds, torch.float64)


def leaves_of(arguments, options):
    given = (arguments[0], arguments[2], options.get("s"), options["state"])
    return [each for each in given if each is not None]


@given(
    form=st.sampled_from(FORMS),
    sizes=SIZES,
    carried=st.booleans(),
    reset=st.sampled_from(RESETS),
    layout=st.sampled_from(["contiguous", "time first"]),
    seed=st.integers(0, 2**32 - 1),
)
def test_states_are_those_of_the_minmax_recurrence_and_gradients_those_of_the_definition(
    form, sizes, carried, reset, layout, seed
):
    torch.manual_seed(seed)
    scan, arguments, options = make_case(form, *sizes, carried=carried, reset=reset, layout=layout)
    _, choice, x0 = arguments
    start = {name: options[name] for name in ("state", "reset")}
    expected, within_bounds = (
        minmax_scan(*as_minmax(form, choice, options, infinite), x0, **start) for infinite in (True, False)
    )
    assert torch.equal(within_bounds, expected)
    grad, found = torch.randn(choice.shape, dtype=torch.float64), {}
    for backend in ("reference", "torch", "auto"):
        x = scan(*arguments, **options, backend=backend)
        assert torch.equal(x, expected)
        found[backend] = torch.autograd.grad(
            x, leaves_of(arguments, options), grad, allow_unused=True, materialize_grads=True
        )
        for one, other in zip(found[backend], found["reference"], strict=True):
            torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_a_weight_of_a_selection_gets_what_comes_back_to_its_row_times_what_it_would_have_taken():
    x0 = torch.tensor([[2.0, 3.0]])
    choice = torch.tensor([[[[1, 2]]]])  # the first row takes 3, the second 7
    weights = torch.full((1, 1, 1, 2, 3), 1 / 3, requires_grad=True)
    s = torch.tensor([[5.0, 7.0]], requires_grad=True)
    x = selection_scan(weights, choice, x0, s=s)
    assert x.tolist() == [[[[3.0, 7.0]]]]
    x.backward(torch.tensor([[[[10.0, 100.0]]]]))
    assert weights.grad.tolist() == [[[[[20.0, 30.0, 50.0], [200.0, 300.0, 700.0]]]]]
    assert s.grad.tolist() == [[0.0, 100.0]]


def test_a_weight_of_a_transformation_gets_its_level_times_what_comes_back_to_its_place():
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
    _, (weights, choice, _), options = make_case("sending", 2, 6, 3, 4)
    x0 = (torch.arange(4) == torch.randint(4, (3, 1))).double().mul_(3).requires_grad_()
    minmax = minmax_scan(*as_minmax("sending", choice, options, True), x0)
    grad = torch.randn(choice.shape, dtype=torch.float64)
    one, other = (torch.autograd.grad(x, x0, grad)[0] for x in (transformation_scan(weights, choice, x0), minmax))
    torch.testing.assert_close(one[x0 > 0], other[x0 > 0], rtol=1e-12, atol=1e-12)


@given(
    form=st.sampled_from(FORMS),
    cut=st.integers(0, 9),
    reset=st.sampled_from(RESETS),
    seed=st.integers(0, 2**32 - 1),
)
def test_two_chunks_are_the_whole_and_so_is_their_gradient(form, cut, reset, seed):
    torch.manual_seed(seed)
    scan, (weights, choice, x0), options = make_case(form, 2, 9, 2, 3, reset=reset)
    whole, when = scan(weights, choice, x0, **options), options["reset"]
    pieces = []
    for piece in (slice(None, cut), slice(cut, None)):
        part = None if when is None else when[:, piece]
        pieces.append(scan(weights[:, piece], choice[:, piece], x0, **{**options, "reset": part}))
        options["state"] = pieces[-1][:, -1] if pieces[-1].shape[1] else None
    joined = torch.cat(pieces, 1)
    assert torch.equal(joined, whole)
    leaves = [each for each in (weights, x0, options.get("s")) if each is not None]
    grad = torch.randn_like(whole)
    one, other = (torch.autograd.grad(each, leaves, grad) for each in (joined, whole))
    for a, b in zip(one, other, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("form", FORMS)
def test_nothing_crosses_a_reset(form):
    scan, (weights, choice, x0), options = make_case(form, 1, 6, 2, 3, carried=True)
    choice = torch.tensor([1, 2, 0]).expand(choice.shape)
    scan(weights, choice, x0, **{**options, "reset": torch.arange(6).unsqueeze(0) == 3})[:, 3:].sum().backward()
    assert weights.grad[:, :3].abs().max() == 0
    assert options["state"].grad.abs().max() == 0
    assert x0.grad.abs().min() > 0


def test_a_nan_stays_where_it_is_sent():
    choice = torch.tensor([[[[2, 2, 1]], [[0, 1, 2]]]])
    x = transformation_scan(torch.ones(1, 2, 1, 3, 3), choice, torch.tensor([[torch.nan, 5.0, 1.0]]))
    assert x[..., 2].isnan().all()
    assert x[0, :, 0, :2].tolist() == [[0.0, 1.0], [0.0, 1.0]]


@pytest.mark.parametrize("form", FORMS)
def test_it_compiles_without_a_break(form):
    scan, arguments, options = make_case(form, 2, 5, 2, 3, reset="random")
    weights, choice, x0 = arguments
    start, s = x0.expand(2, 2, 3), options["s"].expand(2, 2, 3) if "s" in options else None
    torch.library.opcheck(
        torch.ops.latchwork.move_scan,
        (weights, choice, start, s, options["reset"], start, form == "sending", "torch"),
        test_utils=("test_schema", "test_faketensor"),
    )
    compiled = torch.compile(lambda *a: scan(*a, **options), fullgraph=True, backend="aot_eager")
    results = [compiled(*arguments), scan(*arguments, **options)]
    assert torch.equal(*results)
    one, other = (torch.autograd.grad(each.sum(), leaves_of(arguments, options)) for each in results)
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@each_scan
def test_bad_input_names_its_argument(scan):
    _, (weights, choice, x0), _ = make_case("sending", 2, 3, 2, 3)
    s = torch.zeros(2, 3, dtype=weights.dtype)
    alone = {  # what only one of the two takes, or refuses
        selection_scan: [
            (ValueError, r"weights must be .*K being N.*got \(2, 3, 2, 3, 3\)", (weights, choice, x0), {"s": s}),
            (TypeError, "s must have the dtype of weights.*got torch.float16", (weights, choice, x0), {"s": s.half()}),
            (ValueError, r"s must be \(U, N\) = \(2, 3\)", (weights, choice, x0), {"s": s[0]}),
        ],
        transformation_scan: [
            (ValueError, "x0 must be at least 0; got -1.0", (weights, choice, x0 * 0 - 1), {}),
            (ValueError, "state must be at least 0; got -2.0", (weights, choice, x0), {"state": x0 * 0 - 2}),
        ],
    }
    for error, match, arguments, options in [
        (ValueError, r"choice must be \(B, T, U, N\)", (weights, choice[0], x0), {}),
        (TypeError, "choice must be int64; got torch.int32", (weights, choice.int(), x0), {}),
        (ValueError, "choice must be at least 0 and less than 3; got 3 to 3", (weights, choice * 0 + 3, x0), {}),
        (ValueError, r"weights must be .*got \(2, 3, 2, 3, 2\)", (weights[..., :2], choice, x0), {}),
        (TypeError, "weights must be float32.*got torch.int64", (weights.long(), choice, x0), {}),
        (TypeError, "x0 must have the dtype of weights, .*got torch.float16", (weights, choice, x0.half()), {}),
        (TypeError, "state must have the dtype of weights", (weights, choice, x0), {"state": x0.half()}),
        (ValueError, r"x0 must be .*got \(3,\)", (weights, choice, x0[0]), {}),
        (ValueError, r"state must be .*got \(1, 2, 3\)", (weights, choice, x0), {"state": x0[None]}),
        (ValueError, "reset must be bool", (weights, choice, x0), {"reset": torch.zeros(2, 3)}),
        (ValueError, "backend 'cuda' is unknown; there are auto, ref", (weights, choice, x0), {"backend": "cuda"}),
        *alone[scan],
    ]:
        with pytest.raises(error, match=match):
            scan(*arguments, **options)
    (gradient,) = torch.autograd.grad(scan(weights, choice, x0).sum(), weights, create_graph=True)
    with pytest.raises(NotImplementedError, match="no second derivative"):
        gradient.sum().backward()
