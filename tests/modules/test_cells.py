"""The kinds of state: what a step of each does, its gradient, its MinMax form, and several kinds side by side."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from module_definitions import assert_close

from latchwork import MinMaxNeuron, minmax_scan
from latchwork.modules import set_temperature
from latchwork.modules.cells import MatrixCell, ScalarCell, SelectionCell, TransformationCell, make_cells
from latchwork.ops.choice import choose_rows
from latchwork.ops.moves import selection_scan, transformation_scan
from reset_cases import RESETS, make_reset

CELLS = {
    "scalars": lambda levels=None: ScalarCell(6, levels),
    "matrices": lambda levels=None: MatrixCell(6, 3, levels),
    "selection": lambda levels=None: SelectionCell(6, 3, levels),
    "transformation": lambda levels=None: TransformationCell(6, 3, levels),
}
each_kind = pytest.mark.parametrize("kind", CELLS)
each_choice = pytest.mark.parametrize("cell", [SelectionCell(6, 3), TransformationCell(6, 3)], ids=str)


def make_start(cell):
    """Distinct levels in each unit, as a cell of whole levels starts; random numbers for the others."""
    if not hasattr(cell, "lowest"):
        return torch.randn(cell.size, dtype=torch.float64)
    levels = torch.linspace(cell.lowest, 1, cell.degree, dtype=torch.float64)
    return torch.cat([levels[torch.randperm(cell.degree)] for _ in range(cell.size // cell.degree)])


def make_drives(cell, B, T):
    return torch.randn(B, T, cell.width, dtype=torch.float64)


def define_choice(cell, z, x0, state, reset, temperature=1.0):
    """The states of a cell that moves whole levels, by the operation's own definition."""
    (B, T), n, D = z.shape[:2], cell.degree, cell.size
    logits = z[..., : D * n].reshape(B, T, D // n, n, n) / temperature
    x0, state = x0.view(-1, n), None if state is None else state.view(-1, D // n, n)
    options = {"reset": reset, "state": state, "backend": "reference"}
    if isinstance(cell, TransformationCell):
        return transformation_scan(*choose_rows(logits), x0, **options).flatten(2)
    take = z[..., D * n :].reshape(B, T, D // n, n, 1) / temperature
    return selection_scan(*choose_rows(torch.cat([logits, take], -1)), x0, s=x0, **options).flatten(2)


@pytest.mark.parametrize("kind", [SelectionCell, TransformationCell])
@given(
    degree=st.sampled_from([2, 3]),
    B=st.integers(1, 3),
    T=st.integers(0, 6),
    carried=st.booleans(),
    reset=st.sampled_from(RESETS),
    seed=st.integers(0, 2**32 - 1),
)
def test_choices_and_their_surrogate_gradients_equal_the_definition(kind, degree, B, T, carried, reset, seed):
    torch.manual_seed(seed)
    cell, when = kind(6, degree), make_reset(reset, B, T)
    z, x0 = make_drives(cell, B, T).requires_grad_(), make_start(cell).requires_grad_()
    state = x0.detach().expand(B, 6).clone().requires_grad_() if carried else None
    found, expected = cell(z, x0, state, when), define_choice(cell, z, x0, state, when)
    assert torch.equal(found, expected)
    with torch.no_grad():
        assert torch.equal(cell(z, x0, state, when), expected)
    grad, leaves = torch.randn_like(found), [z, x0] + ([state] if carried else [])
    options = {"allow_unused": True, "materialize_grads": True}
    for one, other in zip(*(torch.autograd.grad(a, leaves, grad, **options) for a in (found, expected)), strict=True):
        assert_close(one, other, 1e-10)


@each_kind
@pytest.mark.parametrize("levels", [None, 5])
def test_the_minmax_form_of_a_cell_moves_its_states_in_the_same_way(levels, kind):
    cell = CELLS[kind](levels)
    z, x0, when = make_drives(cell, 2, 9), cell.start(make_start(cell)), make_reset("random", 2, 9)
    r, s = cell.as_minmax(z, x0)
    assert s.shape == ((2, 9, 6) if kind == "scalars" else (2, 9, 2, 3))
    expected = minmax_scan(r, s, x0.view(s.shape[2:]), reset=when).flatten(2)
    assert torch.equal(cell(z, x0, None, when), expected)
    with torch.no_grad():
        assert torch.equal(cell(z, x0, None, when), expected)
    if hasattr(cell, "lowest"):  # one entry of a row, or of a column, is the largest level, and all others the smallest
        assert set(r.unique().tolist()) == {cell.lowest, 1.0}
        assert (r == 1).sum(-2 if kind == "transformation" else -1).max() == 1


def test_a_unit_of_three_places_is_any_of_the_27_maps():
    """Each map as one step: a level 1 at place k alone arrives where the map takes k."""
    cell = TransformationCell(3, 3)
    for maps in torch.cartesian_prod(*[torch.arange(3)] * 3):
        z = torch.nn.functional.one_hot(maps, 3).double().view(1, 1, 9)
        for place in range(3):
            x = cell(z, torch.eye(3, dtype=torch.float64)[place])
            assert x.flatten().tolist() == torch.eye(3)[maps[place]].tolist()


def test_a_level_of_a_transformation_never_falls_below_nothing():
    cell, x0 = TransformationCell(6, 3), torch.tensor([-1.0, 0.5, 2.0, -0.25, -3.0, 1.0], dtype=torch.float64)
    assert cell.start(x0).tolist() == [0.0, 0.5, 2.0, 0.0, 0.0, 1.0]
    z = make_drives(cell, 2, 9)
    below = x0.expand(2, 6)
    with torch.no_grad():
        expected = cell(z, cell.start(x0), below)
    assert torch.equal(cell(z, cell.start(x0), below), expected)
    assert expected.min() >= 0


@each_choice
def test_the_temperature_is_of_the_gradient_alone(cell):
    neuron = MinMaxNeuron(5, [cell], output_gate=False)
    z, x0, grad = make_drives(cell, 2, 5), make_start(cell), torch.randn(2, 5, 6, dtype=torch.float64)
    found, gradients = [], []
    for temperature in (1.0, 4.0):
        set_temperature(neuron, temperature)
        leaf = z.clone().requires_grad_()
        found.append(cell(leaf, x0))
        gradients.append(torch.autograd.grad(found[-1], leaf, grad)[0])
        expected = define_choice(cell, leaf, x0, None, None, temperature)
        assert_close(gradients[-1], torch.autograd.grad(expected, leaf, grad)[0], 1e-10)
    set_temperature(neuron, 1.0)
    assert torch.equal(*found)
    assert not torch.equal(*gradients)


@pytest.mark.parametrize("temperature", [0, -1.0, float("inf"), float("nan")])
def test_a_temperature_is_positive_and_finite(temperature):
    with pytest.raises(ValueError, match="temperature must be positive and finite; got"):
        set_temperature(MinMaxNeuron(5, 6), temperature)


@pytest.mark.parametrize("form", ["free", "selection", "transformation"])
@pytest.mark.parametrize("levels", [None, 5])
def test_cells_side_by_side_are_what_each_is_alone(levels, form):
    cells = make_cells(4, extra_units=[(2, 3), (1, 2)], reset_form=form, levels=levels)
    neuron = MinMaxNeuron(5, cells).double()
    assert (neuron.d_state, neuron.sizes, neuron.widths[:-1]) == (12, [4, 6, 2], [cell.width for cell in cells])
    u, when, seen = torch.randn(2, 7, 5, dtype=torch.float64), make_reset("random", 2, 7), []
    for cell in cells:
        cell.register_forward_hook(lambda cell, given, states: seen.append(states))
    state = torch.randn(2, 12, dtype=torch.float64).abs()  # of a transformation, a state is not negative
    _, last = neuron(u, state, reset=when)
    drives = neuron.project(u).split(neuron.widths, -1)
    parts = zip(cells, drives, neuron.x0.split(neuron.sizes), state.split(neuron.sizes, -1), strict=False)
    expected = [cell(z, cell.start(x0), before, when) for cell, z, x0, before in parts]
    for one, other in zip(seen, expected, strict=False):
        assert torch.equal(one, other)
    assert torch.equal(last, torch.cat(expected, -1)[:, -1])


def test_the_cells_of_a_configuration_are_those_it_names():
    def kinds(*given, **options):
        return [
            (type(cell), cell.size, getattr(cell, "degree", 1), cell.levels) for cell in make_cells(*given, **options)
        ]

    assert kinds(6) == [(ScalarCell, 6, 1, None)]
    assert kinds(6, levels=3) == [(ScalarCell, 6, 1, 3)]
    assert kinds(6, degree=3) == [(MatrixCell, 6, 3, None)]
    assert kinds(6, degree=2, reset_form="transformation") == [(TransformationCell, 6, 2, None)]
    assert kinds(4, extra_units=[(2, 3)], reset_form="selection", levels=5) == [
        (ScalarCell, 4, 1, 5),
        (SelectionCell, 6, 3, 5),
    ]


def test_the_drives_of_a_cell_are_as_many_as_its_formula_has():
    widths = {"scalars": 2 * 6, "matrices": 18 + 6, "selection": 18 + 6, "transformation": 18}
    assert {kind: make().width for kind, make in CELLS.items()} == widths


@pytest.mark.parametrize("kind", [MatrixCell, SelectionCell, TransformationCell])
def test_a_cell_of_parts_of_units_is_an_error(kind):
    for size, degree in [(6, 4), (6, 1), (5, 2)]:
        with pytest.raises(ValueError, match=f"multiple of degree, at least 2; got size {size}, degree {degree}"):
            kind(size, degree)
    with pytest.raises(ValueError, match="size must be at least 1; got 0"):
        ScalarCell(0)


def test_a_cell_prints_its_size_degree_and_levels():
    assert [str(make(3)) for make in CELLS.values()] == [
        "ScalarCell(6, levels=3)",
        "MatrixCell(6, degree=3, levels=3)",
        "SelectionCell(6, degree=3, levels=3)",
        "TransformationCell(6, degree=3, levels=3)",
    ]
