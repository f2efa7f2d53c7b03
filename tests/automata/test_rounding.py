"""The bounds of automata/bounds.py against float32 in many orders, and against exact arithmetic."""

from decimal import Decimal
from fractions import Fraction

import numpy
import pytest
import torch
from float32_runs import ORDERS, VARIANCES, Run, numbers
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import nn

from latchwork.automata import bounds
from latchwork.automata.bounds import Bounded
from latchwork.automata.moves import possible_levels
from latchwork.models import MinMaxRNC, MinMaxRNCConfig
from latchwork.modules.cells.cell import round_to_levels
from latchwork.modules.conv import GatedConv

UNIT = bounds.UNITS["float32"]

runs = st.builds(
    Run,
    order=st.sampled_from(ORDERS),
    fused=st.booleans(),
    flush=st.booleans(),
    together=st.booleans(),
    variance=st.sampled_from(VARIANCES),
    seed=st.integers(0, 99),
)
seeds = st.integers(0, 10**6)


def draw(random, shape, spread):
    """float32 numbers of sizes 2^-spread to 2^spread; often every other is nearly minus the one before: they cancel."""
    found = random.normal(size=shape) * 2.0 ** random.integers(-spread, spread + 1, size=shape)
    if random.integers(2):
        found[..., 1::2] = -found[..., : found.shape[-1] - found.shape[-1] % 2 : 2] * (1 + 1e-4)
    return torch.from_numpy(found).float()


def off(random, x, share):
    """What a run is at x: a Bounded that x is just within."""
    away = torch.from_numpy(random.normal(size=x.shape)) * share * x.double().abs().amax(-1, keepdim=True)
    value = x.double() + away
    radius = bounds.length(value - x.double()) * (1 + 1e-12)
    return Bounded(value, radius + 1e-300, UNIT)


def within(value, radius, found):
    """Entry by entry, exactly."""
    entries = (numpy.broadcast_to(each, found.shape).ravel().tolist() for each in (value, radius, found))
    return all(abs(Fraction(f) - Fraction(v)) <= Fraction(r) for v, r, f in zip(*entries, strict=True))


def rows_within(bounded, found):
    """In the Euclidean norm of each row, exactly."""
    value = bounded.value.numpy()
    for v, r, f in zip(value.tolist(), bounded.radius.flatten().tolist(), numpy.asarray(found).tolist(), strict=True):
        if sum((Fraction(b) - Fraction(a)) ** 2 for a, b in zip(v, f, strict=True)) > Fraction(r) ** 2:
            return False
    return True


def exact_products(x, weight, bias):
    rows = []
    for row in x.tolist():
        terms = [sum(Fraction(a) * Fraction(b) for a, b in zip(w, row, strict=True)) for w in weight.tolist()]
        rows.append([float(term + Fraction(b)) for term, b in zip(terms, bias.tolist(), strict=True)])
    return numpy.array(rows)  # rounded to float64, which the bounds of float32 have room for


@given(seeds, runs, st.sampled_from([1, 2, 7, 40]), st.sampled_from([0, 3, 12, 55]), st.sampled_from([0, 1e-6, 0.1]))
def test_sums_of_products(seed, run, inputs, spread, share):
    random = numpy.random.default_rng(seed)
    weight, bias, x = draw(random, (3, inputs), spread), draw(random, (3,), spread), draw(random, (2, inputs), spread)
    bounded = off(random, x, share)
    try:
        value, radius = bounds.product_by_entry(bounded, weight, bias)
        row = bounds.product(bounded, weight, bias)
    except OverflowError:
        return
    for found in (run.product(numbers(x), weight, bias), exact_products(x, weight, bias)):
        assert within(value, radius, found)
        assert rows_within(row, found)


def errors_of_sums(terms):
    """For each order, by how much of its bound a sum of so many thirds is off; without and with cancelling."""
    x = torch.full((1, terms), 1 / 3)
    for weight in (torch.full((1, terms), 0.7), torch.linspace(-0.7, 0.71, terms)[None]):
        value, radius = bounds.product_by_entry(Bounded.exact(x, UNIT), weight)
        for order in ORDERS:
            found = Run(order).product(numbers(x), weight)
            yield (abs(found - value.numpy()) / radius.numpy()).item()


@pytest.mark.parametrize("terms", [5, 64, 257])
def test_a_bound_of_sums_a_thousand_times_smaller_is_caught(terms):
    assert max(errors_of_sums(terms)) <= 1
    assert max(errors_of_sums(terms)) > 1 / 1000


@pytest.mark.parametrize(("factor", "weight"), [(1e-25, 1e-25), (1e5, 1e-39), (1e-39, 1e5)])
@pytest.mark.parametrize("flush", [False, True])
def test_products_that_underflow(factor, weight, flush):
    x, w = torch.full((1, 4), factor), torch.full((2, 4), weight)
    found = Run(flush=flush).product(numbers(x), w)
    assert within(*bounds.product_by_entry(Bounded.exact(x, UNIT), w), found)
    assert rows_within(bounds.product(Bounded.exact(x, UNIT), w), found)


def test_what_is_added_to_a_product_may_come_first_and_swallow_its_terms():
    x, weight, u = torch.full((1, 257), 0.99 * 2.0**-25), torch.ones(1, 257), torch.ones(1, 1)
    found = Run("falling", together=True).product(numbers(x), weight, plus=numbers(u))
    assert found == 1
    product = bounds.product(Bounded.exact(x, UNIT), weight)
    assert rows_within(bounds.add(Bounded.exact(u, UNIT), product, 258), found)
    assert not rows_within(bounds.add(Bounded.exact(u, UNIT), product), found)


@given(seeds, runs, st.sampled_from([0, 12, 55]), st.sampled_from([0, 1e-6, 0.1]))
def test_sums_and_products_of_two(seed, run, spread, share):
    random = numpy.random.default_rng(seed)
    a, b = draw(random, (2, 5), spread), draw(random, (2, 5), spread)
    bounded = off(random, a, share), off(random, b, share)
    if spread == 55:  # the sum of numbers that large is an error
        bounded = tuple(Bounded(each.value * 2.0**-60, each.radius * 2.0**-60, UNIT) for each in bounded)
        a, b = a * 2.0**-60, b * 2.0**-60
    assert rows_within(bounds.add(*bounded), run.round(numbers(a) + numbers(b)))
    assert rows_within(bounds.multiply(*bounded), run.round(numbers(a) * numbers(b)))


@given(seeds, runs, st.sampled_from([0.01, 1, 10, 40, 120]), st.sampled_from([0, 1e-6, 0.3]))
def test_sigmoids(seed, run, size, share):
    random = numpy.random.default_rng(seed)
    x = torch.from_numpy(random.normal(size=(2, 5)) * size).float()
    bounded = bounds.sigmoid(off(random, x, share))
    exact = [[float(1 / (1 + (-Decimal(each)).exp())) for each in row] for row in x.tolist()]
    for found in (run.sigmoid(numbers(x)), numbers(torch.sigmoid(x)), numpy.array(exact)):
        assert rows_within(bounded, found)


def exact_norm(norm, x):
    eps = Decimal(2.0**-23 if norm.eps is None else norm.eps)
    rows = []
    for row in x.tolist():
        entries = [Decimal(each) for each in row]
        mean = sum(entries) / len(entries) if isinstance(norm, nn.LayerNorm) else Decimal(0)
        sigma = (sum((each - mean) ** 2 for each in entries) / len(entries) + eps).sqrt()
        bias = [0.0] * len(row) if getattr(norm, "bias", None) is None else norm.bias.tolist()
        every = zip(entries, norm.weight.tolist(), bias, strict=True)
        rows.append([float((each - mean) / sigma * Decimal(w) + Decimal(b)) for each, w, b in every])
    return numpy.array(rows)


@given(
    seeds,
    runs,
    st.sampled_from([nn.LayerNorm, nn.RMSNorm]),
    st.sampled_from([1, 2, 9, 33]),
    st.sampled_from([0, 4, 20]),
    st.sampled_from([0, 1e-6, 0.01]),
    st.sampled_from([0.0, 1.0, 30.0]),
)
def test_norms(seed, run, kind, width, spread, share, shift):
    random = numpy.random.default_rng(seed)
    norm = kind(width)
    with torch.no_grad():
        for each in norm.parameters():
            each.copy_(draw(random, (width,), 2))
    x = draw(random, (2, width), spread) * 2.0 ** float(random.integers(-30, 3)) + shift
    try:
        bounded = bounds.normalise(norm, off(random, x, share))
    except OverflowError:
        assume(False)
    for found in (run.norm(norm, numbers(x)), numbers(norm(x)), exact_norm(norm, x)):
        assert rows_within(bounded, found)


@given(seeds, runs, st.sampled_from([0, 12]), st.sampled_from([0, 1e-6, 0.1]))
def test_gated_convolutions(seed, run, spread, share):
    random = numpy.random.default_rng(seed)
    conv, previous, now = GatedConv(5), draw(random, (2, 5), spread), draw(random, (2, 5), spread)
    with torch.no_grad():
        conv.g.copy_(torch.from_numpy(random.normal(size=5) * 10))
    bounded = bounds.convolve(conv, off(random, previous, share), off(random, now, share))
    for found in (
        run.convolve(conv, numbers(previous), numbers(now)),
        numbers(conv(now.unsqueeze(1), previous)[0][:, 0]),
    ):
        assert rows_within(bounded, found)


VARIANTS = {
    "default": {},
    "rmsnorm, gated conv": {"norm": "rmsnorm", "conv_type": "gated", "conv_init_val": 0.7},
    "no norm, basic feed-forward, no gate": {"norm": "none", "ffn_type": "basic", "output_gate": False},
}


def make_layer(seed, variant):
    torch.manual_seed(seed)
    config = {"d_model": 6, "n_layers": 1, "d_state": 4, "levels": 4, "ffn_dropout": 0.0, **VARIANTS[variant]}
    layer = MinMaxRNC(MinMaxRNCConfig(**config)).eval().layers[0]
    with torch.no_grad():
        for each in layer.parameters():
            each.add_(torch.randn_like(each) * 0.5)
    return layer


def check_layer(seed, run, variant, size):
    """Whether a run of a layer is within the bounds: its drive, and its output."""
    layer, random = make_layer(seed, variant), numpy.random.default_rng(seed)
    u, before = (torch.from_numpy(random.normal(size=(3, 6)) * size).float() for _ in range(2))
    states = 2 * random.integers(4, size=(3, 4)) / 3 - 1
    start = Bounded.exact(u, UNIT)
    z = bounds.drive(layer, start, bounds.normalise(layer.norm_conv, Bounded.exact(before, UNIT)))
    found = run.drive(layer, numbers(u), numbers(before))
    y = bounds.respond(layer, start, z, torch.from_numpy(states))
    return within(*z, found) and rows_within(y, run.respond(layer, numbers(u), found, states))


@pytest.mark.parametrize("variant", VARIANTS)
@given(seed=seeds, run=runs, size=st.sampled_from([1e-3, 1.0, 30.0]))
def test_layers(variant, seed, run, size):
    assert check_layer(seed, run, variant, size)


def test_a_layer_notices_when_roundings_are_counted_a_thousand_times_too_small(monkeypatch):
    gamma = bounds.gamma
    monkeypatch.setattr(bounds, "gamma", lambda n, unit: gamma(n, unit) / 1000)
    variant = "no norm, basic feed-forward, no gate"
    assert not all(check_layer(seed, Run(order), variant, 30.0) for seed in range(10) for order in ORDERS)


@given(
    st.integers(2, 40),
    st.integers(0, 10**6),
    st.integers(-40, 40),
    st.sampled_from([0, 1e-9, 1e-7, 1e-4]),
    st.floats(-1, 1),
)
def test_a_drive_next_to_a_boundary_gets_every_level_it_may_be_rounded_to(levels, number, steps, radius, share):
    boundary = (2 * (number % (levels - 1)) + 1) / (levels - 1) - 1
    run = torch.tensor(boundary).float()
    for _ in range(abs(steps)):
        run = torch.nextafter(run, torch.tensor(torch.inf if steps > 0 else -torch.inf))
    z = run.double() + share * radius
    lower, upper = possible_levels(z, torch.tensor(radius).double() + 1e-30, levels, UNIT)
    level = ((round_to_levels(run, levels).double() + 1) * (levels - 1) / 2).round().item()
    assert lower <= level <= upper
    assert upper - lower <= 1
