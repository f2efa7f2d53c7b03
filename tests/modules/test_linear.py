"""Our Linear is nn.Linear for any input, also where a kernel of our own does the work."""

import itertools

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from latchwork.modules.linear import Linear

SIZES = [(128, 128), (1, 20_000), (300, 70), (137, 201), (70, 300)]  # inputs, outputs: large enough for the kernel
SHAPES = [(), (1,), (4,), (5,), (2, 2), (1, 3, 1), (0,), (3, 0), (40,)]
each_size = pytest.mark.parametrize("size", SIZES, ids=str)


def assert_close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)


@each_size
@pytest.mark.parametrize("bias", [False, True])
def test_it_is_a_product_and_a_sum(bias, size):
    layer = Linear(*size, bias=bias)
    for shape, grad in itertools.product(SHAPES, [False, True]):
        x = torch.randn(*shape, size[0])
        with torch.set_grad_enabled(grad):
            y = layer(x)
        assert_close(y, F.linear(x, layer.weight, layer.bias))
        assert y.requires_grad == grad


@each_size
def test_strides_of_input_and_weight_do_not_matter(size):
    layer = Linear(*size)
    x = torch.randn(size[0], 3).T
    rows = torch.randn(size[1], size[0] + 5)[:, 2:-3]
    columns = torch.randn(size[0], size[1]).T
    with torch.no_grad():
        for weight, threads in itertools.product((rows, columns), (1, 3)):
            torch.set_num_threads(threads)
            layer.weight = nn.Parameter(weight)
            assert_close(layer(x), F.linear(x, weight, layer.bias))
            assert_close(layer(x[:1].expand(4, -1)), F.linear(x[:1], weight, layer.bias).expand(4, -1))


def test_it_starts_and_is_saved_as_an_nn_linear():
    torch.manual_seed(1)
    ours = Linear(130, 140)
    torch.manual_seed(1)
    theirs = nn.Linear(130, 140)
    assert isinstance(ours, nn.Linear)
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    assert all(torch.equal(ours.state_dict()[name], value) for name, value in theirs.state_dict().items())


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_other_types_are_those_of_torch(dtype):
    layer, x = Linear(140, 150, dtype=dtype), torch.randn(2, 140, dtype=dtype)
    with torch.no_grad():
        assert torch.equal(layer(x), F.linear(x, layer.weight, layer.bias))


def test_autocast_is_respected():
    layer, x = Linear(140, 150), torch.randn(2, 140)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        assert layer(x).dtype == torch.bfloat16


def test_a_nan_and_an_infinity_go_through():
    layer, x = Linear(140, 150), torch.zeros(3, 140)
    x[0, 7], x[1, 139] = torch.nan, torch.inf
    with torch.no_grad():
        y = layer(x)
    assert y[0].isnan().all()
    assert y[1].isinf().all()
    assert torch.equal(y[2], layer.bias)


def test_what_is_not_frozen_gets_its_gradient():
    for vectors, frozen in itertools.product([1, 40], ["weight", "bias", "neither"]):
        layer, x = Linear(140, 150), torch.randn(vectors, 140)
        if frozen != "neither":
            getattr(layer, frozen).requires_grad_(False)
        layer(x).sum().backward()
        for name, value in layer.named_parameters():
            assert (value.grad is None) == (name == frozen)


@pytest.mark.parametrize("change", [lambda bias: bias.repeat_interleave(2)[::2], lambda bias: bias.double()])
def test_a_bias_of_other_strides_or_type_is_read_rightly_or_refused(change):
    layer, x = Linear(140, 150), torch.randn(2, 140)
    expected = layer(x).detach()
    layer.bias = nn.Parameter(change(layer.bias.detach()))
    with torch.no_grad():
        try:
            y = layer(x)
        except RuntimeError:
            return
    assert_close(y, expected)


def test_an_input_of_another_width_is_an_error():
    layer = Linear(140, 150)
    for width in (70, 139, 141, 300):
        with torch.no_grad(), pytest.raises((RuntimeError, ValueError)):
            layer(torch.randn(1, width))
