import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from latchwork.automata import Machine
from latchwork.automata.compile import compile
from latchwork.automata.extract import StateExplosion, extract
from latchwork.automata.lazy import CHUNK, MOST, Costs, LazyMachine
from latchwork.automata.step import ROWS, Stepper
from latchwork.machines.walk import walk, walk_by_definition
from latchwork.models import MinMaxRNC_LM, MinMaxRNCLMConfig
from latchwork.modules.state import State


def random_network(levels, vocabulary=3, **changes):
    torch.manual_seed(1)
    config = MinMaxRNCLMConfig.small(**{"d_model": 12, "d_state": 4, "n_layers": 2, "levels": levels, **changes})
    return MinMaxRNC_LM(vocabulary, config).eval()


SMALL = [{"d_model": 8, "d_state": d_state, "output_gate": gate} for d_state in (2, 3, 6, 7) for gate in (True, False)]


def answers(model, tokens):
    with torch.no_grad():
        return model(torch.from_numpy(tokens))[0].argmax(-1).numpy()


@pytest.mark.parametrize("pattern", ["a(b|c)*", "(ab)*", "(a|b)*abb", "(aa)*", "((a|b)(a|b))*"])
def test_what_is_extracted_from_a_compiled_network_is_the_machine(pattern):
    machine = Machine.from_regex(pattern, "abc")
    for method in ("cascade", "one_hot"):
        found = extract(compile(machine, method), symbols=3)
        assert found.equivalent(machine) is None
        assert found.minimise() == machine.minimise()


def test_a_network_without_levels_explodes_and_says_so():
    with pytest.raises(StateExplosion, match="of them not followed yet: allow more by max_states") as error:
        extract(random_network(None), 500)
    assert error.value.reached > 500
    assert 0 < error.value.waiting < error.value.reached


def test_a_step_is_a_function_of_state_and_token_and_states_come_back_from_bytes():
    stepper = Stepper(random_network(None))
    keys = [stepper.key(stepper.start)]
    for _ in range(3):
        following, _ = stepper.follow(keys)
        keys = [key for row in following for key in row]
    assert [stepper.key(stepper.state(keys), row) for row in range(len(keys))] == keys
    together, said = stepper.follow(keys)
    for place, key in enumerate(keys):
        alone, said_alone = stepper.follow([key])
        assert alone[0] == together[place]
        assert (said_alone[0] == said[place]).all()
    assert len(keys) * 3 > ROWS


@given(st.integers(0, 1000), st.integers(1, 6), st.integers(1, 4), st.integers(0, 50))
def test_the_walk_in_cpp_is_the_loop(seed, states, symbols, steps):
    random = numpy.random.default_rng(seed)
    following = random.integers(-1, states, (states, symbols)).astype(numpy.int32)
    outputs = random.integers(0, 9, (states, symbols)).astype(numpy.int32)
    tokens, state = random.integers(symbols, size=steps), int(random.integers(states))
    one, other = numpy.full(steps, -7, numpy.int32), numpy.full(steps, -7, numpy.int32)
    found = walk(following, outputs, state, tokens, one)
    assert found == walk_by_definition(following, outputs, state, tokens, other)
    assert (one == other).all()


@pytest.mark.parametrize("changes", SMALL, ids=str)
def test_equal_rows_have_equal_outcomes_wherever_they_stand(changes):
    """MKL adds up the products of one row in another order than those of the next, for some widths like these."""
    stepper = Stepper(random_network(None, **changes))
    states = State(*(torch.randn(each.shape[0], 5, each.shape[2]) for each in stepper.start))
    rows = torch.randint(5, (ROWS,))
    after, _ = stepper._step(State(*(each[:, rows] for each in states)), rows % 3)
    keys = [stepper.key(after, row) for row in range(ROWS)]
    assert len(set(zip(rows.tolist(), keys, strict=True))) == 5


@pytest.mark.parametrize("changes", SMALL, ids=str)
def test_a_learnt_start_and_small_widths_are_extracted(changes):
    model = random_network(3, train_init=True, **changes)
    words = numpy.random.default_rng(0).integers(3, size=(20, 50))
    assert (extract(model, 5000).run(words) == answers(model, words)).all()
    assert (LazyMachine(model).run(words) == answers(model, words)).all()


CHEAP, DEAR = Costs(call=1.0, step=1.0, look=0.01), Costs(call=1.0, step=0.001, look=1.0)


def counting(model, costs):
    """A lazy machine with these costs, and the lengths of the pieces that it gives to the network."""
    lazy, pieces = LazyMachine(model), []
    lazy._costs, network = costs, lazy._network

    def count(tokens, state):
        pieces.append(len(tokens))
        return network(tokens, state)

    lazy._network = count
    return lazy, pieces


@pytest.mark.parametrize("costs", [CHEAP, DEAR])
@pytest.mark.parametrize("steps", [0, 1, 700])
def test_a_lazy_machine_answers_as_the_network_does(steps, costs):
    model = random_network(3)
    lazy, _ = counting(model, costs)
    tokens = numpy.random.default_rng(0).integers(3, size=(3, steps))
    for _ in range(3):
        assert (lazy.run(tokens) == answers(model, tokens)).all() if steps else lazy.run(tokens).shape == (3, 0)
        assert (lazy.run(tokens[0]) == lazy.run(tokens)[0]).all()


@pytest.mark.parametrize("costs", [CHEAP, DEAR])
def test_once_warm_it_needs_the_network_no_more(costs):
    model = random_network(3)
    lazy, pieces = counting(model, costs)
    tokens = numpy.random.default_rng(0).integers(3, size=5000)
    for _ in range(2000):
        pieces.clear()
        lazy.run(tokens)
        if not pieces:
            break
    assert not pieces
    known = lazy.n_states
    lazy.run(tokens)
    assert not pieces
    assert lazy.n_states == known


@pytest.mark.parametrize("steps", [1, 40, CHUNK + 5])
def test_where_states_do_not_repeat_the_work_is_hardly_more_than_the_networks(steps):
    model = random_network(None)
    lazy, pieces = counting(model, DEAR)
    tokens = numpy.random.default_rng(0).integers(3, size=(4, steps))
    looked = []
    look, lazy._look = lazy._look, lambda state: (looked.append(state), look(state))
    assert (lazy.run(tokens) == answers(model, tokens)).all()
    work = sum(DEAR.call + DEAR.step * piece for piece in pieces) + DEAR.look * len(looked)
    assert work <= MOST * 4 * DEAR.alone(steps) + 1e-9
    assert sum(pieces) <= 4 * steps


def test_a_lazy_machine_that_is_full_runs_the_network():
    model = random_network(3)
    lazy = LazyMachine(model, max_states=2)
    tokens = numpy.random.default_rng(0).integers(3, size=3000)
    assert (lazy.run(tokens) == answers(model, tokens[None])[0]).all()


def test_bad_input_names_its_argument():
    model = random_network(3)
    with pytest.raises(ValueError, match="max_states must be at least 1; got 0"):
        extract(model, 0)
    with pytest.raises(ValueError, match=r"symbols must be in 1\.\.vocab_size = 3; got 4"):
        extract(model, symbols=4)
    lazy = LazyMachine(model)
    with pytest.raises(ValueError, match=r"tokens must be in 0\.\.2; got 0\.\.3"):
        lazy.run(numpy.array([0, 3]))
    with pytest.raises(ValueError, match="tokens must be integers"):
        lazy.run(numpy.array([0.5]))


def test_a_network_whose_states_are_not_numbers_is_refused():
    model = random_network(3)
    model.backbone.layers[0].norm_conv.weight.data[0] = torch.nan
    with pytest.raises(ValueError, match="model must have states that are finite"):
        extract(model)
