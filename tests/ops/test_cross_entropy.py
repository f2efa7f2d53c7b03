"""The loss without the logits equals torch's own of the logits, in value and gradient, whichever way it is computed."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from latchwork.ops.cpu import cross_entropy as kernel
from latchwork.ops.cross_entropy import linear_best, linear_cross_entropy, mean_cross_entropy
from latchwork.ops.torch import cross_entropy as pieces
from seen_operations import seen_operations

pytestmark = pytest.mark.usefixtures("one_thread")

TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-6, torch.bfloat16: 3e-2}


@pytest.fixture(params=["kernel", "pieces", "many pieces"])
def way(request, monkeypatch):
    """How float32 on the CPU is computed."""
    if request.param != "kernel":
        monkeypatch.setattr(kernel, "MOST_CLASSES", 0)
    if request.param == "many pieces":
        monkeypatch.setattr(pieces, "BYTES", 1)
        monkeypatch.setattr(pieces, "FEWEST_ROWS", 3)
    return request.param


def define(hidden, weight, targets, ignore_index=-100):
    """torch's own, but 0 where all is ignored."""
    return F.cross_entropy(F.linear(hidden, weight), targets, ignore_index=ignore_index).nan_to_num()


def definition(hidden, weight, targets, ignore_index=-100):
    return mean_cross_entropy(F.linear(hidden, weight), targets, ignore_index)


def make_case(N=17, d=5, V=11, dtype=torch.float32, ignored=0.3, ignore_index=-100):
    targets = torch.randint(V, (N,)).masked_fill(torch.rand(N) < ignored, ignore_index)
    if N and ignored < 1:
        targets[-1] = V - 1
    return torch.randn(N, d, dtype=dtype), torch.randn(V, d, dtype=dtype), targets, ignore_index


def value_and_gradients(function, hidden, weight, targets, ignore_index=-100, scale=1.0):
    hidden, weight = hidden.detach().requires_grad_(), weight.detach().requires_grad_()
    loss = function(hidden, weight, targets, ignore_index)
    return loss.detach(), *torch.autograd.grad(loss * scale, (hidden, weight))


def assert_equals_definition(*case, scale=1.0, tolerance=None):
    dtype = case[0].dtype
    wide = [each.double() if dtype == torch.float32 else each for each in case[:2]]
    actual = value_and_gradients(linear_cross_entropy, *case, scale=scale)
    expected = value_and_gradients(define, *wide, *case[2:], scale=scale)
    for one, other in zip(actual, expected, strict=True):
        assert one.dtype == dtype
        size = max(1.0, abs(scale))
        allowed = {"rtol": tolerance or TOLERANCE[dtype], "atol": (tolerance or TOLERANCE[dtype]) * size}
        torch.testing.assert_close(one.to(other.dtype), other, **allowed, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("way", ["pieces", "many pieces"], indirect=True)
def test_other_types_equal_the_definition(way, dtype):
    assert_equals_definition(*make_case(50, dtype=dtype))


LAYOUTS = {
    "contiguous": lambda a: a,
    "transposed": lambda a: a.transpose(0, -1).contiguous().transpose(0, -1),
    "every other": lambda a: a.repeat_interleave(2, -1)[..., ::2],
    "expanded": lambda a: a[:1].expand_as(a),
}


@settings(max_examples=200)
@given(
    seed=st.integers(0, 2**32 - 1),
    sizes=st.tuples(st.integers(1, 60) | st.sampled_from([95, 96, 97, 193]), st.integers(1, 90), st.integers(1, 100)),
    in_kernel=st.booleans(),
    ignore_index=st.sampled_from([-100, -1, 0, 3, 1000]),
    scale=st.sampled_from([1.0, 0.0, -2.0, 1000.0]),
    layouts=st.tuples(*[st.sampled_from(sorted(LAYOUTS))] * 3),
)
def test_any_case_equals_the_definition(seed, sizes, in_kernel, ignore_index, scale, layouts):
    torch.manual_seed(seed)
    *tensors, _ = make_case(*sizes, ignored=float(torch.rand(())), ignore_index=ignore_index)
    tensors = [LAYOUTS[layout](each) for layout, each in zip(layouts, tensors, strict=True)]
    with pytest.MonkeyPatch.context() as patch:
        if not in_kernel:
            patch.setattr(kernel, "MOST_CLASSES", 0)
            patch.setattr(pieces, "FEWEST_ROWS", 7)
            patch.setattr(pieces, "BYTES", 1)
        assert_equals_definition(*tensors, ignore_index, scale=scale, tolerance=5e-6)


@pytest.mark.parametrize("threads", [2, 3])
def test_the_number_of_threads_changes_only_rounding(threads):
    case = make_case(400 + threads, 7, 50)
    torch.set_num_threads(threads)
    assert_equals_definition(*case)


@pytest.mark.parametrize("N", [0, 17])
def test_the_mean_of_nothing_is_zero_and_so_are_its_gradients(N, way):
    hidden, *rest = make_case(N, ignored=1.0)
    for function in (linear_cross_entropy, definition):
        for filled in (hidden, torch.full_like(hidden, torch.inf)):
            loss, *_ = value_and_gradients(function, filled, *rest)
            assert loss == 0
        assert not any(each.any() for each in value_and_gradients(function, hidden, *rest)[1:])


def test_the_definition_is_torchs_own():
    case = make_case()
    expected = F.cross_entropy(F.linear(*case[:2]), case[2])
    assert torch.equal(definition(*case), expected)
    assert torch.equal(definition(*case[:2], case[2].int()), expected)


@pytest.mark.parametrize("dtype", [torch.int16, torch.uint8, torch.bool, torch.float32, torch.float64], ids=str)
def test_targets_of_another_type_are_an_error(dtype, way):
    hidden, weight, targets, _ = make_case(ignored=0)
    for function in (linear_cross_entropy, definition):
        with pytest.raises(ValueError, match=f"targets must be int64 or int32; got {dtype}"):
            function(hidden, weight, targets.to(dtype))


def test_a_negative_target_that_no_one_checked_is_not_left_out(monkeypatch):
    """As on a GPU, where a look at the targets would cost a wait."""
    monkeypatch.setattr(kernel, "MOST_CLASSES", 0)
    monkeypatch.setattr("latchwork.ops.cross_entropy._check_targets", lambda *_: None)
    hidden, weight, targets, _ = make_case()
    targets[3] = -5
    with pytest.raises(RuntimeError, match="index 11 is out of bounds"):
        linear_cross_entropy(hidden, weight, targets)


@pytest.mark.parametrize("wanted", ["hidden", "weight"])
def test_a_gradient_is_the_same_when_the_other_is_not_wanted(wanted, way):
    hidden, weight, targets, _ = make_case(100)
    _, *both = value_and_gradients(linear_cross_entropy, hidden, weight, targets)
    leaf = (hidden if wanted == "hidden" else weight).requires_grad_()
    (found,) = torch.autograd.grad(linear_cross_entropy(hidden, weight, targets), leaf)
    assert torch.equal(found, both[wanted == "weight"])


def test_without_gradients_the_loss_is_the_same(way):
    hidden, weight, targets, _ = make_case(100)
    loss = linear_cross_entropy(hidden, weight, targets)
    assert not loss.requires_grad
    torch.testing.assert_close(loss, linear_cross_entropy(hidden, weight.requires_grad_(), targets).detach())
    with torch.no_grad():
        assert not linear_cross_entropy(hidden, weight, targets).requires_grad


def test_the_gradient_may_be_asked_for_twice(way):
    hidden, weight, targets, _ = make_case()
    loss = linear_cross_entropy(hidden.requires_grad_(), weight.requires_grad_(), targets)
    first = torch.autograd.grad(loss, (hidden, weight), retain_graph=True)
    second = torch.autograd.grad(loss, (hidden, weight))
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))


def test_huge_logits_give_a_finite_loss(way):
    hidden, weight, targets, _ = make_case()
    assert_equals_definition(hidden * 1e4, weight, targets, tolerance=1e-4)


@pytest.mark.parametrize("place", ["hidden", "weight"])
def test_a_nan_is_not_hidden(place, way):
    hidden, weight, targets, _ = make_case(ignored=0)
    (hidden if place == "hidden" else weight)[0, 0] = torch.nan
    loss, grad_hidden, grad_weight = value_and_gradients(linear_cross_entropy, hidden, weight, targets)
    assert loss.isnan()
    assert grad_hidden[0].isnan().all()
    assert grad_weight.isnan().any()


def test_a_nan_in_a_row_that_is_ignored_does_not_reach_the_loss(way):
    hidden, weight, targets, _ = make_case()
    hidden[0], targets[0] = torch.nan, -100
    assert linear_cross_entropy(hidden, weight, targets).isfinite()


@pytest.mark.parametrize("bad", [11, -1, -99, 2**40])
def test_a_target_outside_the_classes_is_an_error(bad, way):
    hidden, weight, targets, _ = make_case()
    targets[3] = bad
    with pytest.raises(IndexError, match=f"targets must be at least 0 and less than 11; got {bad}"):
        linear_cross_entropy(hidden, weight, targets)


@pytest.mark.parametrize(("way", "N"), [("kernel", 1), ("kernel", 16), ("pieces", 1)], indirect=["way"])
def test_too_few_targets_are_an_error(way, N):
    hidden, weight, targets, _ = make_case(17)
    with pytest.raises((ValueError, RuntimeError)):
        linear_cross_entropy(hidden, weight, targets[:N].clone())


def test_a_second_derivative_is_not_left_out_in_silence(way):
    hidden, weight, targets, _ = make_case()
    loss = linear_cross_entropy(hidden.requires_grad_(), weight, targets)
    (grad,) = torch.autograd.grad(loss, hidden, create_graph=True)
    with pytest.raises(NotImplementedError, match="no second derivative"):
        torch.autograd.grad(grad.sum(), hidden)


def test_under_autocast_it_is_the_definition():
    hidden, weight, targets, _ = make_case()
    with torch.autocast("cpu", torch.bfloat16), seen_operations(every=True) as seen:
        loss, expected = linear_cross_entropy(hidden, weight, targets), define(hidden, weight, targets)
    assert torch.equal(loss, expected)
    assert not seen


@pytest.mark.parametrize("needs", [(True, True), (True, False), (False, True), (False, False)])
def test_torch_finds_nothing_wrong_with_the_operation(needs, way):
    hidden, weight, targets, ignored = make_case()
    backend = "cpu" if way == "kernel" else "torch"
    case = hidden.requires_grad_(needs[0]), weight.requires_grad_(needs[1]), targets, ignored, *needs, backend
    torch.library.opcheck(torch.ops.latchwork.linear_cross_entropy.default, case)


@pytest.mark.parametrize("needs", [(True, False), (False, True), (False, False)])
def test_a_gradient_that_is_not_needed_is_not_computed(needs, way, monkeypatch):
    made = []
    backend = kernel if way == "kernel" else pieces
    losses = backend.losses
    monkeypatch.setattr(backend, "losses", lambda *a: made.append([each is not None for each in a[4:]]) or losses(*a))
    hidden, weight, targets, _ = make_case()
    hidden.requires_grad_(needs[0]), weight.requires_grad_(needs[1])
    linear_cross_entropy(hidden, weight, targets)
    with torch.no_grad():
        linear_cross_entropy(hidden, weight, targets)
    assert made == [list(needs), [False, False]]


def test_a_compiled_graph_keeps_the_operation():
    case = make_case(ignored=0)
    graphs = []

    def keep(graph, inputs):
        graphs.append(graph)
        return graph

    found = value_and_gradients(torch.compile(linear_cross_entropy, backend=keep, fullgraph=True), *case)
    assert any(node.target is torch.ops.latchwork.linear_cross_entropy for node in graphs[0].graph.nodes)
    compiled = torch.compile(linear_cross_entropy, backend="aot_eager", fullgraph=True)
    for each in (found, value_and_gradients(compiled, *case)):
        for one, other in zip(each, value_and_gradients(linear_cross_entropy, *case), strict=True):
            assert torch.equal(one, other)


NORMS = ("none", "layernorm", "rmsnorm")


def best_by_definition(hidden, weight, norm="none", epsilon=0.0, norm_weight=None, norm_bias=None):
    """-1 where a logit is a NaN, and the distance of the two largest logits of each row."""
    wide = [None if each is None else each.double() for each in (hidden, weight, norm_weight, norm_bias)]
    logits = F.linear(pieces.normed(wide[0], norm, epsilon, *wide[2:]), wide[1])
    two = logits.topk(min(2, logits.shape[1]), dim=-1).values
    return logits.argmax(-1).masked_fill(logits.isnan().any(-1), -1), two[:, 0] - two[:, -1]


@settings(max_examples=200)
@given(
    seed=st.integers(0, 2**32 - 1),
    sizes=st.tuples(st.integers(0, 60) | st.sampled_from([95, 96, 97, 193]), st.integers(1, 90), st.integers(1, 100)),
    in_kernel=st.booleans(),
    norm=st.sampled_from(NORMS),
    parts=st.integers(0, 2),
    layouts=st.tuples(*[st.sampled_from(sorted(LAYOUTS))] * 2),
    threads=st.sampled_from([1, 2, 3]),
)
def test_the_best_class_is_that_of_the_logits(seed, sizes, in_kernel, norm, parts, layouts, threads):
    torch.manual_seed(seed)
    torch.set_num_threads(threads)
    N, d, V = sizes
    hidden, weight = (LAYOUTS[how](torch.randn(*s)) for how, s in zip(layouts, ((N, d), (V, d)), strict=True))
    of_norm = [torch.randn(d) if number < parts and norm != "none" else None for number in range(2)]
    if norm == "rmsnorm":
        of_norm[1] = None
    with pytest.MonkeyPatch.context() as patch:
        if not in_kernel:
            patch.setattr(kernel, "MOST_CLASSES", 0)
            patch.setattr(pieces, "FEWEST_ROWS", 7)
            patch.setattr(pieces, "BYTES", 1)
        found = linear_best(hidden, weight, norm, 1e-3, *of_norm)
    expected, apart = best_by_definition(hidden, weight, norm, 1e-3, *of_norm)
    assert found.dtype == torch.int64
    clear = (apart > 1e-4) | torch.tensor(V == 1)
    assert torch.equal(found[clear], expected[clear])


@pytest.mark.parametrize("V", [1, 15, 16, 17, 33, 64])
def test_of_equal_logits_the_first_is_the_best_and_a_nan_leaves_none(V, way):
    for place in {0, V // 2, V - 1}:
        hidden, weight = torch.ones(5, 3), torch.zeros(V, 3)
        weight[place:] = 2.0
        weight[place, 0] = 2.0
        hidden[3, 1] = torch.nan
        hidden[1], hidden[2] = torch.inf, -1.0
        expected = [place, -1 if place else 0, 0, -1, place]
        assert linear_best(hidden, weight).tolist() == expected


def test_the_best_class_has_no_gradient_and_bad_input_is_an_error(way):
    hidden, weight = torch.randn(4, 3, requires_grad=True), torch.randn(5, 3, requires_grad=True)
    assert not linear_best(hidden, weight).requires_grad
    with pytest.raises(ValueError, match=r"hidden and weight must be \(N, d\) and \(V, d\) with V > 0; got \(4, 3\)"):
        linear_best(hidden, weight[:, :2])
    with pytest.raises(ValueError, match="norm must be one of none, layernorm, rmsnorm; got 'batch'"):
        linear_best(hidden, weight, "batch")
    with pytest.raises(ValueError, match=r"norm_bias must be \(d,\) = \(3,\); got \(2,\)"):
        linear_best(hidden, weight, "layernorm", 1e-5, torch.ones(3), torch.ones(2))
