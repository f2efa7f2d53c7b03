"""What a drive does to states as numbers, against the units themselves."""

import copy

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from network_cases import random_network

from latchwork.automata import bounds
from latchwork.automata.as_made import copy_as_made
from latchwork.automata.grid_layer import GridLayer
from latchwork.automata.moves import SelectionMoves, TooUnsure, TransformationMoves, make_moves, why_not
from latchwork.modules import MinMaxNeuron
from latchwork.modules.cells import SelectionCell, TransformationCell, make_cells
from latchwork.ops.choice import choose_rows


def neuron(**changes):
    cells = make_cells(**{"d_state": 6, "degree": 3, "reset_form": "selection", **changes})
    return MinMaxNeuron(4, cells, output_gate=False)


@pytest.mark.parametrize("form", ["selection", "transformation"])
@given(seed=st.integers(0, 2**32), degree=st.integers(2, 4), units=st.integers(1, 3), alike=st.booleans())
def test_numbers_move_as_the_states_they_stand_for(form, seed, degree, units, alike):
    torch.manual_seed(seed)
    single = neuron(d_state=degree * units, degree=degree, reset_form=form)
    if alike:  # levels that are equal, and some below 0
        single.x0.copy_(torch.randint(-1, 2, (degree * units,)))
    (moves,) = make_moves(single, single, single)
    x = moves.start()[None].repeat(5, 0)
    states = torch.from_numpy(moves.values(x)).float()
    assert torch.equal(states, single.start().flatten().expand_as(states))
    for _ in range(4):
        z = torch.randn(5, 1, moves.width)
        with torch.no_grad():
            states = single.cells[0](z, single.start(), states)[:, 0]
        choices = moves.choices(z[:, 0].double(), torch.zeros(5, moves.width), 0.0)
        assert not len(choices.option)
        x = moves.recur(choices.first, x)
        assert torch.equal(torch.from_numpy(moves.values(x)).float(), states)


@pytest.mark.parametrize(("cell", "make"), [(SelectionCell, SelectionMoves), (TransformationCell, TransformationMoves)])
@given(seed=st.integers(0, 2**32), radius=st.sampled_from([0.0, 0.01, 0.3, 3.0]))
def test_every_choice_that_rounding_may_lead_to_is_among_the_choices(cell, make, seed, radius):
    torch.manual_seed(seed)
    cell, x0 = cell(6, 3), torch.linspace(0, 1, 6)
    moves = make(cell, x0, x0.double(), x0)
    z = torch.randn(7, moves.width).double()
    off = radius * torch.rand_like(z)
    choices = moves.choices(z, off, 0.0)
    possible = {(row, entry, int(choices.first[row, entry])) for row in range(7) for entry in range(6)}
    possible |= set(zip(choices.row.tolist(), choices.entry.tolist(), choices.option.tolist(), strict=True))
    for _ in range(20):
        logits = cell.logits(z + off * (2 * torch.rand_like(z) - 1))
        choice = choose_rows(*logits)[1].flatten(1).tolist()
        assert {(row, entry, choice[row][entry]) for row in range(7) for entry in range(6)} <= possible


def test_a_tie_leaves_both_choices_and_only_where_the_state_differs_do_they_decide():
    moves = SelectionMoves(SelectionCell(2, 2), *[torch.tensor([-1.0, 1.0])] * 3)
    z = torch.tensor([[1.0, 1.0, 0.0, 2.0, -1.0, 2.0]]).double()  # rows: (1, 1, take -1), (0, 2, take 2)
    choices = moves.choices(z, torch.zeros_like(z), 0.0)
    assert choices.first.tolist() == [[0, 1]]
    assert (choices.entry.tolist(), choices.option.tolist()) == ([0, 0, 1, 1], [0, 1, 1, 2])
    x = numpy.array([[0, 0], [0, 1], [1, 1]], numpy.uint8)
    assert moves.decides(0, numpy.array([0, 1]), x).tolist() == [False, True, False]
    assert moves.decides(1, numpy.array([1, 2]), x).tolist() == [True, False, False]  # x0 of place 1 is number 1


FORMS = {
    "scalar": {"levels": 3, "d_state": 3},
    "matrix": {"levels": 3, "d_state": 4, "degree": 2},
    "selection": {"d_state": 6, "degree": 3, "reset_form": "selection"},
    "transformation": {"d_state": 6, "degree": 3, "reset_form": "transformation"},
    "all": {"levels": 3, "d_state": 2, "extra_units": ((1, 3),), "reset_form": "transformation"},
}


@pytest.mark.parametrize("form", FORMS)
@given(seed=st.integers(0, 2**32), tolerance=st.sampled_from([0.0, 0.05, 0.2]))
def test_every_state_that_rounding_may_lead_to_is_followed(form, seed, tolerance):
    """The drive is moved at random within its bounds; where the cells then go is among the states that follow."""
    model = random_network(seed, output_gate=False, **FORMS[form])
    single, double = (copy_as_made(model, kind).backbone.layers[0] for kind in (torch.float32, torch.float64))
    grid = GridLayer(double, single, bounds.UNITS["float32"], tolerance, 1 << 30)
    u = torch.randn(2, 8)
    grid.add_inputs(bounds.Bounded.exact(u, grid.unit), u)
    rows = grid.drives(numpy.zeros(2, numpy.int64), numpy.array([1, 2]))
    nothing = bounds.Bounded.exact(torch.zeros(2, 8), grid.unit)
    z, radius = bounds.drive(double, bounds.Bounded.exact(u, grid.unit), nothing)
    x = grid.start()[None].repeat(2, 0)
    for _ in range(3):
        try:
            places, following = grid.follow(rows, x)
        except TooUnsure:
            return
        for _ in range(10):
            moved = z + (radius + tolerance) * (2 * torch.rand_like(z) - 1)
            found = [step(double.neuron, moved[row], grid.values(x[row : row + 1])) for row in range(2)]
            for row in range(2):
                assert (grid.values(following[places == row]) == found[row]).all(1).any()
        x = following[[numpy.flatnonzero(places == row)[-1] for row in range(2)]]


def step(neuron, z, x):
    """The states (d_state) after x (1, d_state), of the cells themselves."""
    with torch.no_grad():
        parts = zip(
            neuron.cells,
            z[: sum(neuron.widths)].split_with_sizes(neuron.widths),
            neuron.start().split_with_sizes(neuron.sizes),
            x.split_with_sizes(neuron.sizes, 1),
            strict=True,
        )
        return torch.cat([cell(part[None, None], x0, state)[0, 0] for cell, part, x0, state in parts])


def test_cells_side_by_side_have_moves_of_their_own():
    mixed = neuron(d_state=2, degree=1, extra_units=((1, 3), (2, 2)), levels=3)
    moves = make_moves(mixed, mixed, mixed)
    assert [(each.size, each.width, each.levels) for each in moves] == [(2, 4, 3), (3, 12, 3), (4, 12, 2)]
    assert numpy.concatenate([each.start() for each in moves][1:]).tolist() == [0, 1, 2, 0, 1, 0, 1]
    assert why_not(mixed.cells) is None
    assert "no levels" in why_not(neuron(d_state=2, degree=1, extra_units=((1, 3),)).cells)


def test_a_cell_of_another_kind_cannot_be_followed():
    other = type("Other", (SelectionCell,), {})
    assert why_not([other(2, 2)]) == "the network has a Other, of which there are no bounds"


@pytest.mark.parametrize("form", ["selection", "transformation"])
def test_states_begin_as_a_run_in_the_precision_that_is_meant_begins(form):
    """A third is another number in float32 than in float64."""
    single = neuron(reset_form=form, levels=4)
    double = copy.deepcopy(single).double()
    for run in (single, double):
        (moves,) = make_moves(double, single, run)
        assert (moves.values(moves.start()) == run.start().double().flatten().numpy()).all()
    assert not torch.equal(single.start().double(), double.start())
