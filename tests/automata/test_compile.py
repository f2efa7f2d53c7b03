import itertools

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from latchwork.automata import Machine
from latchwork.automata.compile import compile
from latchwork.automata.decompose import is_group_free
from latchwork.models import MinMaxRNC_LM

EXPRESSIONS = {
    "a(b|c)*": 1,
    "(ab)*": 1,
    "(a|b)*abb": 1,
    "a*b*c*": 1,
    "(aa)*": None,
    "((a|b)(a|b))*": None,
    "(a|b)*a(a|b)": 1,
    "ab|ba": 1,
    "a?b?c?": 1,
    "(abc)*": 1,
    "a+b+": 1,
    "b*(ab*ab*)*": None,
    "(a|bc)*": 1,
    "c": 1,
    "(a|b|c)*": 1,
}


def all_words(symbols, longest):
    """(symbols ** longest, longest): every word of that length, and with it all that it begins with."""
    return numpy.array(list(itertools.product(range(symbols), repeat=longest)))


def answers(model, words):
    with torch.no_grad():
        return model(torch.from_numpy(words))[0].argmax(-1).numpy()


def random_machine(random, states, symbols, outputs=3):
    shape = (states, symbols)
    return Machine.from_table(
        random.integers(states, size=shape), random.integers(outputs, size=shape), int(random.integers(states))
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("method", ["cascade", "one_hot"])
@pytest.mark.parametrize("pattern", EXPRESSIONS)
def test_an_expression_becomes_a_network_that_is_right_on_all_words(pattern, method, dtype):
    machine = Machine.from_regex(pattern, "abc")
    model = compile(machine, method).to(dtype)
    words = all_words(3, 6)
    assert (answers(model, words) == machine.run(words)).all()


@pytest.mark.parametrize("method", ["cascade", "one_hot"])
def test_every_machine_of_two_states_and_two_symbols(method):
    words = all_words(2, 6)
    for table in itertools.product(range(2), repeat=8):
        machine = Machine.from_table(numpy.array(table[:4]).reshape(2, 2), numpy.array(table[4:]).reshape(2, 2))
        assert (answers(compile(machine, method), words) == machine.run(words)).all()


@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 3))
def test_random_machines(seed, states, symbols):
    random = numpy.random.default_rng(seed)
    machine = random_machine(random, states, symbols)
    words = random.integers(symbols, size=(8, 40))
    for method in ("cascade", "one_hot"):
        model = compile(machine, method)
        for dtype in (torch.float32, torch.bfloat16):
            assert (answers(model.to(dtype), words) == machine.run(words)).all()


@given(st.integers(0, 10**6), st.integers(1, 5))
def test_the_degree_is_one_exactly_when_there_is_no_group(seed, states):
    machine = random_machine(numpy.random.default_rng(seed), states, 2)
    assert (compile(machine).config.backbone.degree == 1) == is_group_free(machine)


def test_no_network_of_degree_one_comes_out_for_parity():
    parity = Machine.from_table([[0, 1], [1, 0]], [[0, 1], [1, 0]])
    assert compile(parity).config.backbone.degree == 2
    assert compile(parity, "one_hot").config.backbone.degree == 2


def test_the_push_form_is_right_on_the_symmetric_group_of_three():
    permutations = list(itertools.permutations(range(3)))
    index = {each: k for k, each in enumerate(permutations)}
    table = [[index[tuple(b[a[k]] for k in range(3))] for b in permutations] for a in permutations]
    machine = Machine.from_table(table, table)
    words = numpy.random.default_rng(0).integers(6, size=(20, 100))
    for method in ("cascade", "one_hot"):
        assert (answers(compile(machine, method), words) == machine.run(words)).all()


def test_a_long_word():
    machine = Machine.from_regex("(a|b)*abb", "ab")
    word = numpy.random.default_rng(0).integers(2, size=(1, 100_000))
    model = compile(machine)
    with torch.no_grad():
        found = model(torch.from_numpy(word), chunk_size=4096)[0].argmax(-1).numpy()
    assert (found == machine.run(word)).all()


def test_a_compiled_network_is_an_ordinary_model(tmp_path):
    machine = Machine.from_regex("(ab)*", "ab")
    model = compile(machine)
    model.save(tmp_path)
    words = all_words(2, 7)
    loaded = MinMaxRNC_LM.load(tmp_path)
    assert (answers(loaded, words) == machine.run(words)).all()
    state, found = None, []
    with torch.no_grad():
        for step in torch.from_numpy(words).split(1, 1):
            logits, state = loaded(step, state)
            found.append(logits.argmax(-1))
    assert (torch.cat(found, 1).numpy() == machine.run(words)).all()
    loss, _ = model.train().loss(torch.from_numpy(words), torch.from_numpy(machine.run(words)))
    loss.backward()
    assert all(each.grad is not None for each in model.backbone.parameters())


def test_packed_words_do_not_see_each_other():
    machine = Machine.from_regex("a(b|c)*", "abc")
    model = compile(machine)
    words = numpy.random.default_rng(0).integers(3, size=(2, 5, 6))
    reset = torch.zeros(2, 30, dtype=torch.bool)
    reset[:, ::6] = True
    with torch.no_grad():
        found = model(torch.from_numpy(words.reshape(2, 30)), reset=reset)[0].argmax(-1).numpy()
    assert (found.reshape(10, 6) == machine.run(words.reshape(10, 6))).all()


def test_an_unknown_method_is_named():
    with pytest.raises(ValueError, match="method must be 'cascade' or 'one_hot'; got 'magic'"):
        compile(Machine.from_regex("a", "ab"), "magic")
