"""A matrix times a few vectors: what F.linear gives, from float32 or int8 weights, and no gradient is lost."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from latchwork.modules.linear import Linear
from latchwork.ops.cpu import matvec as kernel
from latchwork.ops.matvec import int8_linear, linear

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def calls(monkeypatch):
    """One entry for each call of the kernel, as an operation of torch or straight."""
    made, call = [], kernel.kernel.call
    monkeypatch.setattr(kernel.kernel, "call", lambda name, problem: made.append(name) or call(name, problem))
    return made


@pytest.fixture(autouse=True)
def _small_cases(monkeypatch):
    """The kernel takes float32 weights from the size on from which it takes int8."""
    monkeypatch.setattr(kernel, "COLD", 1)


def make_case(vectors=1, outputs=128, inputs=128, *, bias=True, row=0):
    """x, weight, bias. row: elements between the rows of the weight that do not belong to it."""
    weight = torch.full((outputs, inputs + row), torch.nan)[:, :inputs]
    weight.copy_(torch.randn(outputs, inputs))
    return torch.randn(vectors, inputs), weight, torch.randn(outputs) if bias else None


def make_int8_case(vectors=1, outputs=128, inputs=128, *, bias=True, row=0):
    """x, weight, scale, bias."""
    weight = torch.randint(-128, 128, (outputs, inputs + row), dtype=torch.int8)[:, :inputs]
    return torch.randn(vectors, inputs), weight, torch.rand(outputs, 1) + 0.1, torch.randn(outputs) if bias else None


def assert_close(actual, expected, tolerance=2e-6):
    assert actual.dtype == torch.float32
    scale = max(1.0, expected.abs().max().item())
    torch.testing.assert_close(actual.double(), expected, rtol=0, atol=tolerance * scale)


def assert_linear_equals_the_definition(x, weight, bias):
    wide = [None if each is None else each.double() for each in (x, weight, bias)]
    assert_close(linear(x, weight, bias), F.linear(*wide))


def assert_int8_equals_the_definition(x, weight, scale, bias):
    wide = weight.double() * scale.double()
    assert_close(
        int8_linear(x, weight, scale, bias), F.linear(x.double(), wide, None if bias is None else bias.double())
    )


MAKERS = {
    "float32": (make_case, assert_linear_equals_the_definition),
    "int8": (make_int8_case, assert_int8_equals_the_definition),
}
each_kind = pytest.mark.parametrize("kind", MAKERS)
each_bias = pytest.mark.parametrize("bias", [False, True])


@each_kind
@pytest.mark.parametrize("threads", [1, 2, 3, 7])
@pytest.mark.parametrize(("outputs", "inputs"), [(300, 301), (5, 20000), (70000, 1)])
def test_every_number_of_threads_equals_the_definition(outputs, inputs, threads, kind, calls):
    torch.set_num_threads(threads)
    make, check = MAKERS[kind]
    check(*make(2, outputs, inputs))
    assert calls


@settings(max_examples=200)
@given(
    seed=st.integers(0, 2**32 - 1),
    sizes=st.tuples(st.integers(1, 4), st.integers(1, 50), st.integers(1, 110)),
    row=st.integers(0, 9) | st.just(128),
    bias=st.booleans(),
    kind=st.sampled_from(list(MAKERS)),
)
def test_any_case_equals_the_definition(seed, sizes, row, bias, kind):
    torch.manual_seed(seed)
    make, check = MAKERS[kind]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "SMALLEST", 0)
        x, weight, *rest = make(*sizes, bias=bias, row=row)
        assert kernel.pays(x, weight, *([None] if kind == "float32" else []), *rest)
        check(x, weight, *rest)


@each_kind
@pytest.mark.parametrize("shape", [(128,), (1, 128), (1, 1, 128), (2, 1, 128), (2, 2, 128), (4, 1, 1, 128)], ids=str)
def test_the_shape_is_that_of_f_linear(shape, kind, calls):
    make, check = MAKERS[kind]
    _, *rest = make()
    check(torch.randn(shape), *rest)
    assert calls


@each_kind
def test_strides_of_the_vectors_do_not_matter(kind, calls):
    make, check = MAKERS[kind]
    x, *rest = make(4)
    for each in (x.T.contiguous().T, x.repeat_interleave(2, 1)[:, ::2], x[:1].expand(4, 128)):
        check(each, *rest)
    assert len(calls) == 3


def test_a_transposed_weight_goes_the_plain_way(calls):
    x, weight, bias = make_case()
    assert_linear_equals_the_definition(x, weight.T.contiguous().T, bias)
    assert not calls


@each_kind
@pytest.mark.parametrize("shape", [(0, 128), (2, 0, 128)], ids=str)
def test_no_vector_gives_no_result(shape, kind, calls):
    make, _ = MAKERS[kind]
    _, *rest = make()
    function = linear if kind == "float32" else int8_linear
    assert function(torch.zeros(shape), *rest).shape == (*shape[:-1], 128)
    assert not calls


@each_kind
def test_a_nan_reaches_the_results_of_its_vector(kind, calls):
    make, _ = MAKERS[kind]
    x, *rest = make(2)
    x[1, 5] = torch.nan
    y = (linear if kind == "float32" else int8_linear)(x, *rest)
    assert y[1].isnan().all()
    assert not y[0].isnan().any()
    assert calls


# ---- Training.

NAMES = {"float32": ["x", "weight", "bias"], "int8": ["x", "scale", "bias"]}  # what may have a gradient


@pytest.mark.parametrize(("kind", "wanted"), [(kind, each) for kind in NAMES for each in [*NAMES[kind], "all"]])
@pytest.mark.parametrize("vectors", [(), (1,), (2,), (2, 1)], ids=str)
def test_the_gradient_is_that_of_f_linear(vectors, kind, wanted, calls):
    x, weight, *rest = make_case(4) if kind == "float32" else make_int8_case(4)
    x = x[: torch.Size(vectors).numel()].reshape(*vectors, 128)
    named = dict(zip(NAMES[kind], (x, *([weight] if kind == "float32" else []), *rest), strict=True))
    leaves = [each.requires_grad_() for name, each in named.items() if wanted in (name, "all")]
    function, grad = (linear if kind == "float32" else int8_linear), torch.randn(*vectors, 128)
    found = torch.autograd.grad(function(x, weight, *rest), leaves, grad)
    whole = weight if kind == "float32" else weight * rest[0]
    for one, other in zip(found, torch.autograd.grad(F.linear(x, whole, rest[-1]), leaves, grad), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-4)
    assert calls


def test_training_and_evaluation_take_the_same_path_to_the_same_bits(calls):
    x, weight, bias = make_case()
    layer = Linear(128, 128)
    with torch.no_grad():
        layer.weight.copy_(weight)
        layer.bias.copy_(bias)
        y = layer(x)
    assert torch.equal(layer(x), y)
    assert len(calls) == 2


@each_kind
def test_torch_finds_nothing_wrong_with_the_operation(kind):
    x, weight, *rest = make_case(2) if kind == "float32" else make_int8_case(2)
    scale, bias = (None, *rest) if kind == "float32" else rest
    leaves = [x, bias] + ([weight] if scale is None else [scale])
    for each in leaves:
        each.requires_grad_()
    torch.library.opcheck(torch.ops.latchwork.matvec.default, (x, weight, scale, bias))


def test_a_compiled_graph_has_the_product_of_torch():
    graphs = []
    torch.compile(linear, backend=lambda graph, _: graphs.append(graph) or graph, fullgraph=True)(*make_case())
    names = [node.target.__name__ for node in graphs[0].graph.nodes if node.op == "call_function"]
    assert "linear" in names
    assert not any("matvec" in each for each in names)


# ---- Where the kernel is not used.


def autocast(x, weight, bias):
    with torch.autocast("cpu", torch.bfloat16):
        return linear(x, weight, bias)


OTHERWISE = {  # name: what is called with x, weight, bias
    "few weights": lambda x, weight, bias: linear(x, weight[:127], bias[:127]),
    "five vectors": lambda x, weight, bias: linear(x.expand(5, 128), weight, bias),
    "float64": lambda x, weight, bias: linear(x.double(), weight.double(), bias.double()),
    "bfloat16": lambda x, weight, bias: linear(x.bfloat16(), weight.bfloat16(), bias.bfloat16()),
    "autocast": autocast,
    "meta": lambda *a: linear(*(each.to("meta") for each in a)),
    "subclass": lambda x, weight, bias: linear(x.as_subclass(type("Marked", (torch.Tensor,), {})), weight, bias),
}


@pytest.mark.parametrize("way", OTHERWISE)
def test_what_the_kernel_does_not_take_goes_the_plain_way(way, calls):
    x, weight, bias = make_case()
    y = OTHERWISE[way](x, weight, bias)
    assert not calls
    if way != "meta":
        expected = F.linear(x, weight, bias)[..., : y.shape[-1]].expand(y.shape)
        torch.testing.assert_close(torch.Tensor(y.float()), expected, rtol=0.05, atol=0.5)


def test_the_kernel_takes_what_it_is_made_for():
    x, weight, bias = make_case()
    for each in (None, bias, nn.Parameter(bias, requires_grad=False)):
        assert kernel.pays(x, weight, None, each)
        assert kernel.pays(x, nn.Parameter(weight, requires_grad=False), None, each)
        assert kernel.pays(x, weight.to(torch.int8), torch.ones(128, 1), each)
    assert not kernel.pays(x, weight.half(), None, bias)
    assert not kernel.pays(x, weight, None, bias.half())


# ---- What F.linear refuses, and what it takes though it is unusual.


WRONG = {  # name: what is called with x, weight, bias
    **{f"a bias of {size}": lambda x, weight, bias, n=size: linear(x, weight, torch.zeros(n)) for size in (127, 129)},
    "a bias of another type": lambda x, weight, bias: linear(x, weight, bias.double()),
    "whole numbers without a scale": lambda x, weight, bias: linear(x, weight.to(torch.int8)),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_bias_or_weight_that_does_not_fit_is_an_error(name):
    with pytest.raises(RuntimeError):
        WRONG[name](*make_case())


@pytest.mark.parametrize(("kind", "width"), list(itertools.product(MAKERS, [127, 129, 200, 256])))
def test_vectors_of_another_width_are_an_error(kind, width):
    make, _ = MAKERS[kind]
    _, *rest = make()
    with pytest.raises(RuntimeError):
        (linear if kind == "float32" else int8_linear)(torch.randn(1, width), *rest)


@each_kind
@pytest.mark.parametrize("layout", ["every other", "expanded"])
def test_strides_of_the_bias_do_not_matter(layout, kind):
    make, check = MAKERS[kind]
    *rest, bias = make()
    check(*rest, bias.repeat_interleave(2)[::2] if layout == "every other" else bias[:1].expand(128))


@pytest.mark.parametrize("change", ["expanded", "float64"])
def test_any_scale_is_read_as_it_is(change):
    x, weight, scale, bias = make_int8_case()
    scale = scale[:1].expand(128, 1) if change == "expanded" else scale.double()
    assert_int8_equals_the_definition(x, weight, scale, bias)
