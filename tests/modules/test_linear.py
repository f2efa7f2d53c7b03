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


def test_it_starts_and_is_saved_as_an_nn_linear():
    torch.manual_seed(1)
    ours = Linear(130, 140)
    torch.manual_seed(1)
    theirs = nn.Linear(130, 140)
    assert isinstance(ours, nn.Linear)
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    assert all(torch.equal(ours.state_dict()[name], value) for name, value in theirs.state_dict().items())


def test_what_is_not_frozen_gets_its_gradient():
    for vectors, frozen in itertools.product([1, 40], ["weight", "bias", "neither"]):
        layer, x = Linear(140, 150), torch.randn(vectors, 140)
        if frozen != "neither":
            getattr(layer, frozen).requires_grad_(False)
        layer(x).sum().backward()
        for name, value in layer.named_parameters():
            assert (value.grad is None) == (name == frozen)
