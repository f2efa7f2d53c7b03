"""Units that move whole levels: what a step does, the surrogate gradient, and several degrees side by side."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from module_definitions import RESETS, assert_close, make_reset, randomise_

from latchwork import MinMaxNeuron, minmax_scan
from latchwork.modules import set_temperature
from latchwork.modules.choice import choose_permutation
from latchwork.modules.units import Units
from latchwork.ops.choice import choose_rows
from latchwork.ops.selection import selection_scan
from latchwork.ops.transformation import transformation_scan

each_form = pytest.mark.parametrize("form", ["selection", "permutation", "transformation"])


def make_neuron(*, d_state=6, **options):
    """Random weights; x0 as it starts, at distinct levels."""
    neuron = MinMaxNeuron(5, d_state, **options).double()
    x0 = neuron.x0.detach().clone()
    randomise_(neuron)
    neuron.x0.detach().copy_(x0)
    return neuron


def definition(neuron, u, x, reset):
    """The states of a neuron without groups by the op's own definition, from logits read by name."""
    n, D = neuron.degree, neuron.d_state
    z = u @ neuron.projection.weight.T + neuron.projection.bias
    logits = z[..., : D * n].reshape(*u.shape[:2], D // n, n, n)
    x0 = neuron.x0.view(-1, n)
    state = None if x is None else x.view(-1, D // n, n)
    options = {"reset": reset, "state": state, "backend": "reference"}
    if neuron.blocks[0].form == "permutation":
        return selection_scan(*choose_permutation(logits), x0, **options).flatten(2)
    if neuron.blocks[0].form == "transformation":
        return transformation_scan(*choose_rows(logits), x0, **options).flatten(2)
    take = z[..., D * n : D * n + D].reshape(*u.shape[:2], D // n, n, 1)
    chosen = choose_rows(torch.cat([logits, take], -1))
    return selection_scan(*chosen, x0, s=x0, **options).flatten(2)


def definition_from(neuron, u):
    """The definition, from the levels as the recurrence sees them."""
    n, D = neuron.degree, neuron.d_state
    logits = (u @ neuron.projection.weight.T + neuron.projection.bias)[..., : D * n]
    logits = logits.reshape(*u.shape[:2], D // n, n, n)
    return transformation_scan(*choose_rows(logits), neuron.x0.clamp(min=0).view(-1, n), backend="reference").flatten(2)


@each_form
@given(
    degree=st.sampled_from([2, 3]),
    B=st.integers(1, 3),
    T=st.integers(0, 6),
    carried=st.booleans(),
    reset=st.sampled_from(RESETS),
    output_gate=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_the_states_and_their_gradients_equal_the_definition(form, degree, B, T, carried, reset, output_gate, seed):
    torch.manual_seed(seed)
    neuron = make_neuron(degree=degree, reset_form=form, train_init=True, output_gate=output_gate)
    u = torch.randn(B, T, 5, dtype=torch.float64, requires_grad=True)
    when = make_reset(reset, B, T)
    x = neuron.x0.detach().expand(B, 6).clone().requires_grad_() if carried else None
    found, expected = neuron.states(neuron.project(u), x, reset=when), definition(neuron, u, x, when)
    assert torch.equal(found, expected)
    with torch.no_grad():
        assert torch.equal(neuron.states(neuron.project(u), x, reset=when), expected)
    leaves = [u, neuron.projection.weight, neuron.projection.bias, neuron.x0] + ([x] if carried else [])
    options = {"allow_unused": True, "materialize_grads": True}
    grad = torch.randn_like(found)
    one, other = (torch.autograd.grad(each, leaves, grad, **options) for each in (found, expected))
    for a, b in zip(one, other, strict=True):
        assert_close(a, b, 1e-10)


@each_form
def test_signals_are_the_r_and_s_of_the_minmax_recurrence_at_the_extreme_levels(form):
    neuron, u = make_neuron(degree=3, reset_form=form), torch.randn(2, 9, 5, dtype=torch.float64)
    z = neuron.project(u)
    r, s, gate = neuron.signals(z)
    assert set(r.unique().tolist()) == ({0.0, 1.0} if form == "transformation" else {-1.0, 1.0})
    assert (r == 1).sum(-2 if form == "transformation" else -1).max() == 1
    assert gate.shape == (2, 9, 6)
    assert torch.equal(minmax_scan(r, s, neuron.start()).flatten(2), neuron.states(z))


@each_form
def test_no_level_is_ever_new_and_a_permutation_loses_none(form):
    neuron = make_neuron(degree=3, reset_form=form)
    x = neuron.states(neuron.project(torch.randn(4, 50, 5, dtype=torch.float64))).unflatten(-1, (2, 3))
    assert set(x.unique().tolist()) <= ({0.0, 0.5, 1.0} if form == "transformation" else {-1.0, 0.0, 1.0})
    if form == "permutation":
        assert torch.equal(x.sort(-1).values, torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64).expand_as(x))


def test_taking_x0_resets_a_unit_whatever_came_before():
    neuron = make_neuron(degree=3, reset_form="selection", output_gate=False)
    with torch.no_grad():
        neuron.projection.weight[18:, 0] = 100.0  # the logits of taking x0
    u = torch.randn(2, 8, 5, dtype=torch.float64)
    u[..., 0] = -1.0
    u[:, 5, 0] = 1.0
    x = neuron.states(neuron.project(u))
    assert not torch.equal(x[:, 4], neuron.x0.expand(2, 6))
    assert torch.equal(x[:, 5], neuron.x0.expand(2, 6))


@pytest.mark.parametrize("form", ["free", "selection", "permutation", "transformation"])
@pytest.mark.parametrize("levels", [None, 5])
def test_blocks_side_by_side_are_what_each_is_alone(form, levels):
    neuron = make_neuron(d_state=4, groups=[(2, 3), (1, 2)], reset_form=form, levels=levels)
    assert neuron.d_state == 4 + 6 + 2
    assert [(block.size, block.degree, block.form) for block in neuron.blocks] == [
        (4, 1, "free"),
        (6, 3, form),
        (2, 2, form),
    ]
    u, first, row = torch.randn(2, 7, 5, dtype=torch.float64), 0, 0
    when = make_reset("random", 2, 7)
    states = neuron.states(neuron.project(u), reset=when)
    for block in neuron.blocks:
        form_alone = {"degree": block.degree, "reset_form": block.form, "levels": levels}
        alone = MinMaxNeuron(5, block.size, output_gate=False, **form_alone).double()
        rows, scalars = slice(row, row + sum(block.widths)), slice(first, first + block.size)
        with torch.no_grad():
            alone.projection.weight.copy_(neuron.projection.weight[rows])
            alone.projection.bias.copy_(neuron.projection.bias[rows])
            alone.x0.copy_(neuron.x0[scalars])
        assert_close(alone.states(alone.project(u), reset=when), states[..., scalars])
        first, row = scalars.stop, rows.stop


def test_groups_stand_beside_units_of_a_degree_too_and_have_no_single_r():
    neuron = make_neuron(d_state=6, degree=3, groups=[(1, 5)], reset_form="selection")
    y, x = neuron(torch.randn(2, 3, 5, dtype=torch.float64))
    assert (y.shape, x.shape) == ((2, 3, 5), (2, 11))
    with pytest.raises(ValueError, match="several r and s"):
        neuron.signals(neuron.project(torch.zeros(1, 1, 5, dtype=torch.float64)))


def test_choices_start_nearly_even_and_levels_apart():
    neuron = MinMaxNeuron(200, 100, degree=5, reset_form="selection", output_gate=False)
    logits = neuron.project(torch.randn(50, 200))
    assert logits.std().item() == pytest.approx(0.1, rel=0.05)
    assert torch.equal(neuron.x0.view(20, 5).sort(-1).values, torch.linspace(-1, 1, 5).expand(20, 5))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reset_form": "selection"}, "reset_form must be 'free' where all degrees are 1; got 'selection'"),
        (
            {"reset_form": "swap", "degree": 2},
            "one of free, selection, permutation, transformation; got 'swap'",
        ),
        ({"groups": [(0, 2)]}, r"groups must be \(number, degree\) each, at least \(1, 2\); got"),
        ({"groups": [(1, 1)]}, "groups must be"),
        ({"groups": [(1, 7)], "reset_form": "permutation"}, "'permutation' is for a degree of at most 6; got 7"),
    ],
)
def test_a_bad_form_names_itself(options, message):
    with pytest.raises(ValueError, match=message):
        MinMaxNeuron(5, 6, **options)


def test_the_widths_of_a_block():
    assert Units(6, 3, "selection").widths == [18, 6]
    assert Units(6, 3, "permutation").widths == [18, 0]
    assert Units(6, 3, "transformation").widths == [18, 0]


def test_a_unit_of_three_places_is_any_of_the_27_maps():
    """Each map as one step: a level 1 at place k alone arrives where the map takes k."""
    block = Units(3, 3, "transformation")
    for maps in torch.cartesian_prod(*[torch.arange(3)] * 3):
        z = torch.nn.functional.one_hot(maps, 3).double().view(1, 1, 9)
        for place in range(3):
            x0 = torch.nn.functional.one_hot(torch.tensor([[place]]), 3).double().view(1, 3)
            assert block.states(z, x0, None, None, "auto").flatten().argmax() == maps[place]
            assert block.states(z, x0, None, None, "auto").sum() == 1


def test_a_level_of_a_transformation_never_falls_below_nothing():
    neuron = make_neuron(degree=3, reset_form="transformation", train_init=True)
    with torch.no_grad():
        neuron.x0.copy_(torch.tensor([-1.0, 0.5, 2.0, -0.25, -3.0, 1.0]))
    assert neuron.start().flatten().tolist() == [0.0, 0.5, 2.0, 0.0, 0.0, 1.0]
    u = torch.randn(2, 9, 5, dtype=torch.float64)
    assert torch.equal(neuron.states(neuron.project(u)), definition_from(neuron, u))


@each_form
def test_the_temperature_is_of_the_gradient_alone(form):
    torch.manual_seed(0)
    neuron, u = make_neuron(degree=3, reset_form=form, output_gate=False), torch.randn(2, 5, 5, dtype=torch.float64)
    block, found, gradients = neuron.blocks[0], [], []
    grad = torch.randn(2, 5, 6, dtype=torch.float64)
    for temperature in (1.0, 4.0):
        set_temperature(neuron, temperature)
        z = neuron.project(u).detach().requires_grad_()
        found.append(neuron.states(z))
        gradients.append(torch.autograd.grad(found[-1], z, grad)[0])
        logits, own = block._logits(z)
        if form == "permutation":
            weights, choice = choose_permutation(logits / temperature)
        else:
            weights, choice = choose_rows(logits / temperature, None if own is None else own / temperature)
        x0 = neuron.start()
        scan = transformation_scan if form == "transformation" else selection_scan
        options = {"s": x0} if form == "selection" else {}
        expected = scan(weights, choice, x0, backend="reference", **options).flatten(2)
        assert_close(gradients[-1], torch.autograd.grad(expected, z, grad)[0], 1e-10)
    assert torch.equal(*found)
    assert not torch.equal(*gradients)


@pytest.mark.parametrize("temperature", [0, -1.0, float("inf"), float("nan")])
def test_a_temperature_is_positive_and_finite(temperature):
    with pytest.raises(ValueError, match="temperature must be positive and finite; got"):
        set_temperature(make_neuron(), temperature)
