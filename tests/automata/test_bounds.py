import pytest
import torch
from torch import nn

from latchwork.automata import bounds
from latchwork.automata.bounds import Bounded
from latchwork.models import MinMaxRNC, MinMaxRNCConfig

VARIANTS = {
    "default": {},
    "rmsnorm, gated conv": {"norm": "rmsnorm", "conv_type": "gated", "conv_init_val": 0.7},
    "no norm, basic feed-forward, no gate": {"norm": "none", "ffn_type": "basic", "output_gate": False},
    "levels": {"levels": 3},
}


def make(**changes):
    config = MinMaxRNCConfig(**{"d_model": 30, "n_layers": 1, "d_state": 12, "ffn_dropout": 0.0, **changes})
    backbone = MinMaxRNC(config).double().eval()
    with torch.no_grad():
        for each in backbone.parameters():
            each.add_(torch.randn_like(each) * 0.3)
    return backbone


UNIT = {torch.float32: bounds.UNITS["float32"], torch.float64: bounds.UNITS["float64"]}


def holds(bounded, found):
    return bool((bounds.length(found.double() - bounded.value) <= bounded.radius).all())


def entries_hold(value, radius, found):
    return bool(((found.double() - value).abs() <= radius).all())


@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("size", [1e-3, 1.0, 100.0])
def test_what_every_path_computes_lies_within_the_bounds(variant, size, precision):
    layer = make(**VARIANTS[variant]).to(precision).layers[0]
    u = (torch.randn(3, 40, 30) * size + size).to(precision)
    start = Bounded.exact(u, UNIT[precision])
    v = bounds.normalise(layer.norm_conv, start)
    shifted = (torch.cat((torch.zeros_like(each[:, :1]), each[:, :-1]), 1) for each in v[:2])
    previous = Bounded(*shifted, v.unit)
    z = bounds.drive(layer, start, previous)
    with torch.no_grad():
        eager_v = layer.norm_conv(u)
        shifted = torch.cat((torch.zeros_like(eager_v[:, :1]), eager_v[:, :-1]), 1)
        assert holds(v, eager_v)
        steps = [layer.drive(u[:, t : t + 1], shifted[:, t]) for t in range(40)]
        for found in (layer.drive(u), torch.cat(steps, 1)):
            assert entries_hold(*z, found)
        (cell,) = layer.neuron.cells
        x = cell(z[0][..., : cell.width], layer.neuron.start().to(z[0].dtype))
        if cell.levels is None:
            return
        # on a grid the states are the same whatever the rounding, unless a value is next to a boundary
        y = bounds.respond(layer, start, z, x)
        if (z[0].abs() - 0.5).abs().min() > z[1].max():
            assert holds(y, layer(u)[0])
            state, steps = None, []
            for t in range(40):
                step, state = layer(u[:, t : t + 1], state)
                steps.append(step)
            assert holds(y, torch.cat(steps, 1))


def test_the_bounds_are_tight_enough_to_be_of_use():
    layer = make().layers[0]
    for precision, enough in ((torch.float64, 1e-8), (torch.float32, 1.0)):
        u = Bounded.exact(torch.randn(50, 30), UNIT[precision])
        z, radius = bounds.drive(layer, u, bounds.normalise(layer.norm_conv, u))
        assert radius.max() < enough * z.abs().max()


@pytest.mark.parametrize("norm", [nn.LayerNorm(20), nn.RMSNorm(20), nn.LayerNorm(20, elementwise_affine=False)])
@pytest.mark.parametrize("shift", [0.0, 1.0, 1000.0])
def test_a_norm_of_inputs_that_are_off_stays_within_its_bounds(norm, shift):
    value = torch.randn(100, 20, dtype=torch.float64) + shift
    radius = torch.rand(100, 1, dtype=torch.float64) * 1e-3 + 1e-4 * shift
    bounded = bounds.normalise(norm, Bounded(value, radius, UNIT[torch.float64]))
    for _ in range(20):
        direction = torch.randn_like(value)
        off = value + 0.99 * radius * direction / bounds.length(direction)
        with torch.no_grad():
            assert holds(bounded, norm.double()(off))


@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
def test_products_of_awkward_sizes_and_signs(precision):
    for inputs, outputs in [(1, 1), (7, 3), (257, 5)]:
        weight, bias, x = (torch.randn(*shape).to(precision) for shape in [(outputs, inputs), (outputs,), (64, inputs)])
        weight, bias = weight * 1e3, bias * 1e-3
        exact = Bounded.exact(x, UNIT[precision])
        bounded, entries = bounds.product(exact, weight, bias), bounds.product_by_entry(exact, weight, bias)
        for found in (nn.functional.linear(x, weight, bias), (x[:, None] * weight).flip(-1).cumsum(-1)[..., -1] + bias):
            assert holds(bounded, found)
            assert entries_hold(*entries, found)


def test_numbers_that_may_overflow_are_an_error():
    big = Bounded.exact(torch.full((2, 3), 1e14), UNIT[torch.float32])
    with pytest.raises(OverflowError, match="may be beyond 1e\\+15"):
        bounds.product(big, torch.full((4, 3), 1e3))
    with pytest.raises(OverflowError, match="not finite"):
        bounds.add(big, Bounded.exact(torch.full((2, 3), torch.nan), UNIT[torch.float32]))
    with pytest.raises(OverflowError, match="mean is far larger"):
        bounds.normalise(nn.LayerNorm(20), Bounded.exact(1e4 + torch.rand(2, 20), UNIT[torch.float32]))


def test_what_has_no_bounds_is_named():
    with pytest.raises(ValueError, match="act_fn must be 'relu' for bounds; got 'gelu'"):
        bounds.drive(
            make(ffn_act_fn="gelu").layers[0], *(Bounded.exact(torch.randn(2, 30), 2.0**-24) for _ in range(2))
        )
    with pytest.raises(TypeError, match="norm must be LayerNorm, RMSNorm or Identity; got Dropout"):
        bounds.normalise(nn.Dropout(), Bounded.exact(torch.zeros(2, 3), 2.0**-24))
