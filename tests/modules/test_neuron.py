"""The recurrent cell equals its formula: projections, recurrence, output gate."""

import itertools

import module_definitions as definition
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from module_definitions import LAYOUTS, LENGTHS, RESETS, assert_close, make_reset, randomise_

from latchwork import MinMaxNeuron

each_degree = pytest.mark.parametrize("degree", [1, 2, 3])


def make_neuron(dtype=torch.float64, **options):
    return randomise_(MinMaxNeuron(5, 6, **options)).to(dtype)


@each_degree
@pytest.mark.parametrize("levels", [None, 2, 5])
@pytest.mark.parametrize("output_gate", [False, True])
@pytest.mark.parametrize("train_init", [False, True])
def test_a_neuron_equals_its_formula_at_every_length_start_and_reset(train_init, output_gate, levels, degree):
    neuron = make_neuron(degree=degree, levels=levels, output_gate=output_gate, train_init=train_init)
    for T, carried, reset in itertools.product([1, 7], [False, True], RESETS):
        u, when = torch.randn(3, T, 5, dtype=torch.float64), make_reset(reset, 3, T)
        state = torch.randn(3, 6, dtype=torch.float64) if carried else None
        y, last = neuron(u, state, reset=when)
        expected, expected_last = definition.neuron(neuron, u, state, when)
        assert_close(y, expected)
        assert_close(last, expected_last)


def assert_equals_formula(neuron, B, T, carried, reset):
    """Values and gradients."""
    u = torch.randn(B, T, neuron.d_model, dtype=torch.float64, requires_grad=True)
    state = torch.randn(B, neuron.d_state, dtype=torch.float64, requires_grad=True) if carried else None
    when = make_reset(reset, B, T)
    results = [neuron(u, state, reset=when), definition.neuron(neuron, u, state, when)]
    for actual, expected in zip(*results, strict=True):
        assert_close(actual, expected)
    if neuron.levels is not None:  # the formula of rounding has no gradient
        return
    leaves = [u, *neuron.parameters()] + ([state] if carried else [])
    grads = [torch.randn_like(each) for each in results[0]]
    options = {"allow_unused": True, "materialize_grads": True}
    found, expected = (torch.autograd.grad(result, leaves, grads, **options) for result in results)
    for one, other in zip(found, expected, strict=True):
        assert_close(one, other, 1e-10)


@given(
    sizes=st.tuples(*[st.integers(1, 4)] * 3),
    degree=st.integers(1, 4),
    units=st.integers(1, 4),
    levels=st.none() | st.integers(2, 9),
    output_gate=st.booleans(),
    carried=st.booleans(),
    reset=st.sampled_from(RESETS),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_neuron_and_its_gradients_equal_the_formula(
    sizes, degree, units, levels, output_gate, carried, reset, seed
):
    torch.manual_seed(seed)
    (B, T, d), D = sizes, units * degree
    options = {"degree": degree, "output_gate": output_gate, "train_init": True}
    neuron = randomise_(MinMaxNeuron(d, D, levels=levels, **options)).double()
    assert_equals_formula(neuron, B, T, carried, reset)


@given(
    sizes=st.tuples(*[st.integers(1, 4)] * 3),
    bank=st.integers(1, 4),
    pairs=st.integers(1, 4),
    output_gate=st.booleans(),
    carried=st.booleans(),
    reset=st.sampled_from(RESETS),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_bank_and_its_gradients_equal_the_formula(sizes, bank, pairs, output_gate, carried, reset, seed):
    torch.manual_seed(seed)
    (B, T, d), D = sizes, bank * pairs
    neuron = randomise_(MinMaxNeuron(d, D, bank=bank, output_gate=output_gate, train_init=True)).double()
    assert_equals_formula(neuron, B, T, carried, reset)


def test_a_bank_shares_what_drives_and_reads_its_latches():
    neuron = MinMaxNeuron(5, 24, bank=4)
    assert (neuron.d_state, neuron.d_read, neuron.widths) == (24, 6, [6, 6, 6])
    assert sum(each.numel() for each in neuron.parameters()) == 18 * 6 + 5 * 7 + 3 * 24
    x = torch.arange(24.0)
    assert torch.equal(neuron.read(x), x.view(4, 6).mean(0))  # as it starts
    torch.testing.assert_close(neuron.shift_r, torch.linspace(-0.5, 1.5, 4).repeat_interleave(6))
    assert torch.equal(neuron.shift_s, -neuron.shift_r)


@each_degree
@pytest.mark.parametrize("backend", ["reference", "torch", "cpu"])
def test_every_backend_gives_the_same_bits(backend, degree):
    neuron, u = make_neuron(torch.float32, degree=degree), torch.randn(2, 9, 5)
    expected, last = neuron(u)
    neuron.backend = backend
    assert torch.equal(neuron(u)[0], expected)
    assert torch.equal(neuron(u)[1], last)


@each_degree
@pytest.mark.parametrize("layout", LAYOUTS)
def test_strides_of_the_input_do_not_matter_to_a_neuron(layout, degree):
    neuron, u = make_neuron(degree=degree), torch.randn(3, 4, 5, dtype=torch.float64)
    state = torch.randn(6, 3, dtype=torch.float64).T
    reset = (torch.rand(4, 3) < 0.3).T
    actual = neuron(LAYOUTS[layout](u), state, reset=reset)
    expected = neuron(u, state.contiguous(), reset=reset.contiguous())
    for one, other in zip(actual, expected, strict=True):
        assert_close(one, other)


@pytest.mark.parametrize("carried", [False, True])
@pytest.mark.parametrize(("degree", "B", "T"), list(itertools.product([1, 2, 3], [0, 1, 2], LENGTHS)))
def test_a_neuron_of_nothing_has_the_right_shapes_and_keeps_the_state(degree, T, B, carried):
    neuron = make_neuron(degree=degree)
    state = torch.randn(B, 6, dtype=torch.float64) if carried else None
    for reset in (None, torch.zeros(B, T, dtype=torch.bool)):
        y, last = neuron(torch.randn(B, T, 5, dtype=torch.float64), state, reset=reset)
        assert (y.shape, last.shape) == ((B, T, 5), (B, 6))
        if T == 0:
            assert torch.equal(last, neuron.x0.expand(B, 6) if state is None else state)


@each_degree
def test_the_state_goes_on_where_it_stopped_bit_for_bit(degree):
    neuron, u = make_neuron(torch.float32, degree=degree), torch.randn(2, 9, 5)
    z = neuron.project(u)
    whole = neuron.states(z)
    parts, state = [], None
    for piece in z.split([1, 3, 4, 1], 1):
        parts.append(neuron.states(piece, state))
        state = parts[-1][:, -1]
    assert torch.equal(torch.cat(parts, 1), whole)


@pytest.mark.parametrize("train_init", [False, True])
def test_x0_is_a_parameter_only_if_it_is_to_be_learned(train_init):
    neuron = MinMaxNeuron(5, 6, train_init=train_init)
    assert ("x0" in dict(neuron.named_parameters())) == train_init
    assert "x0" in neuron.state_dict()
    assert not neuron.x0.any()


@each_degree
def test_a_learned_x0_has_the_gradient_of_every_start_in_the_batch(degree):
    neuron = make_neuron(degree=degree, train_init=True)
    u = torch.randn(3, 4, 5, dtype=torch.float64)
    reset = torch.tensor([[0, 0, 1, 0], [0, 0, 0, 0], [1, 1, 0, 0]], dtype=torch.bool)
    for T in (1, 4):
        found, expected = (
            torch.autograd.grad(run(u[:, :T], None, reset[:, :T])[0].square().sum(), neuron.x0)[0]
            for run in (lambda u, x, reset: neuron(u, x, reset=reset), lambda *a: definition.neuron(neuron, *a))
        )
        assert_close(found, expected, 1e-10)


def test_dropout_is_of_the_input_before_all_projections():
    neuron = MinMaxNeuron(40, 6, dropout=0.5)
    u = torch.ones(1, 1, 40)
    torch.manual_seed(1)
    y, _ = neuron(u)
    torch.manual_seed(1)
    dropped = torch.nn.functional.dropout(u, 0.5)
    expected, _ = neuron.eval()(dropped)
    assert_close(y, expected, 1e-6)
    assert torch.equal(neuron(u)[0], neuron(u)[0])


@pytest.mark.parametrize("T", [1, 2, 9])
def test_a_blur_changes_gradients_and_no_state(T):
    found = []
    for blur in (0.0, 0.5):
        torch.manual_seed(0)
        neuron = MinMaxNeuron(5, 6, blur=blur, s_r_init="spread", train_init=True)
        u = torch.randn(2, T, 5)
        y, state = neuron(u)
        y.sum().backward()
        found.append((y.detach(), state.detach(), neuron.projection.weight.grad))
    (y, state, exact), (blurred_y, blurred_state, blurred) = found
    assert torch.equal(y, blurred_y)
    assert torch.equal(state, blurred_state)
    assert not torch.equal(exact, blurred)


def test_groups_beside_blurred_scalars_keep_their_own_gradient():
    torch.manual_seed(0)
    neuron = MinMaxNeuron(5, 6, blur=0.5, groups=((2, 3),))
    assert [block.blur for block in neuron.blocks] == [0.5, 0.0]
    y, _ = neuron(torch.randn(2, 4, 5))
    y.sum().backward()
    assert neuron.projection.weight.grad.isfinite().all()


def test_the_defaults_of_a_neuron_are_those_of_the_paper():
    neuron = MinMaxNeuron(5, 6)
    assert (neuron.degree, neuron.levels, neuron.output_gate, neuron.dropout.p) == (1, None, True, 0.0)
    assert sum(each.numel() for each in neuron.parameters()) == 3 * 6 * 6 + 5 * 7


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"s_r_init": "kaimng"}, "s_r_init must be one of .*small_init.*; got 'kaimng'"),
        ({"degree": 4}, "d_state must be a multiple of degree"),
        ({"degree": 0}, "degree"),
        ({"levels": 1}, "levels must be at least 2"),
        ({"blur": -1.0}, "blur must be at least 0 and finite; got -1.0"),
        ({"blur": torch.nan}, "blur must be at least 0 and finite; got nan"),
        ({"bank": 0}, "d_state must be a multiple of bank, at least 1; got d_state 6, bank 0"),
        ({"bank": 4}, "d_state must be a multiple of bank, at least 1; got d_state 6, bank 4"),
        ({"bank": 2, "degree": 2}, "bank must be 1 for a degree of more than 1, and where there are levels; got 2"),
        ({"bank": 2, "levels": 3}, "bank must be 1 for"),
        ({"blur": 0.5, "degree": 2}, "blur must be 0 for a degree of more than 1; got 0.5 and degree 2"),
    ],
)
def test_a_bad_option_names_itself(options, message):
    with pytest.raises(ValueError, match=message):
        MinMaxNeuron(5, 6, **options)


@pytest.mark.parametrize("T", [1, 3])
@pytest.mark.parametrize("shape", [(2, 5), (1, 6), (3, 6), (12,)], ids=str)
def test_a_state_of_the_wrong_shape_is_an_error(shape, T):
    with pytest.raises((ValueError, RuntimeError)):
        make_neuron()(torch.zeros(2, T, 5, dtype=torch.float64), torch.zeros(shape, dtype=torch.float64))
