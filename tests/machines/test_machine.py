import numpy
import pytest
from automata.fa.dfa import DFA
from hypothesis import given
from hypothesis import strategies as st

from latchwork.automata import Machine
from machine_cases import machines, random_machine, slow_run, words


@given(machines(), st.data())
def test_a_run_is_one_step_after_the_other(machine, data):
    rows, steps = data.draw(st.integers(0, 3)), data.draw(st.integers(0, 12))
    seed = data.draw(st.integers(0, 99))
    tokens = numpy.random.default_rng(seed).integers(machine.n_symbols, size=(rows, steps))
    outputs = machine.run(tokens)
    assert outputs.shape == (rows, steps)
    assert outputs.tolist() == [slow_run(machine, word) for word in tokens.tolist()]


@pytest.mark.parametrize(("rows", "steps"), [(1, 5000), (15, 101), (16, 101), (17, 1), (2000, 9)])
@pytest.mark.parametrize("states", [1, 5, 300])
def test_few_rows_and_many_give_the_same(rows, steps, states):
    machine = random_machine(rows, states, symbols=3, outputs=5)
    tokens = numpy.random.default_rng(steps).integers(3, size=(rows, steps))
    assert machine.run(tokens).tolist() == [slow_run(machine, word) for word in tokens.tolist()]


def test_the_machine_of_an_expression_is_the_smallest():
    machine = Machine.from_regex("(a|b)*a(a|b)(a|b)", "ab")
    assert machine.minimise() == machine
    assert machine.n_states == 4  # which of the last two letters were a; the output shows the one before


def test_the_alphabet_gives_the_tokens():
    assert Machine.from_regex("(ab)*", "ba").run([[1, 0]]).tolist() == [[0, 1]]
    assert Machine.from_regex("(ab)*", "abc").n_symbols == 3


def test_an_automaton_of_the_package_gives_its_machine():
    dfa = DFA.from_substring({"0", "1"}, "011")
    machine = Machine.from_dfa(dfa)
    for word in (word for word in words(2, 7) if len(word) == 7):
        text = "".join(map(str, word))
        assert slow_run(machine, word) == [int(dfa.accepts_input(text[: t + 1])) for t in range(7)]
    flipped = Machine.from_dfa(dfa, "10")
    assert flipped.run([[1, 0, 0]]).tolist() == machine.run([[0, 1, 1]]).tolist()


def test_an_automaton_that_lacks_transitions_stops_accepting():
    dfa = DFA(
        states={"x", "y"}, input_symbols={"a", "b"}, transitions={"x": {"a": "y"}, "y": {"a": "x"}},
        initial_state="x", final_states={"y"}, allow_partial=True,
    )  # fmt: skip
    assert Machine.from_dfa(dfa).run([[0, 0, 0, 1, 0, 0]]).tolist() == [[1, 0, 1, 0, 0, 0]]
    with pytest.raises(ValueError, match=r"alphabet must hold each of \['a', 'b'\] once; got \['a', 'a'\]"):
        Machine.from_dfa(dfa, "aa")


@given(machines())
def test_what_is_reachable_gives_the_same_outputs(machine):
    smaller = machine.reachable()
    met = {machine.start}
    for _ in range(machine.n_states):
        met |= {int(state) for before in met for state in machine.transitions[before]}
    assert smaller.n_states == len(met)
    for word in words(machine.n_symbols, 4):
        assert slow_run(smaller, word) == slow_run(machine, word)


@given(machines(outputs=2))
def test_the_smallest_machine_has_a_state_for_each_way_to_go_on(machine):
    smallest = machine.minimise()
    assert smallest.equivalent(machine) is None
    reachable = machine.reachable()
    longest = reachable.n_states  # words of that length tell apart all that can be told apart
    tests = [word for word in words(machine.n_symbols, longest) if len(word) == longest]
    tokens = numpy.array(tests if len(tests) <= 300 else tests[:: len(tests) // 300])
    answers = set()
    for state in range(reachable.n_states):
        answers.add(Machine(reachable.transitions, reachable.outputs, state).run(tokens).tobytes())
    if len(tests) <= 300:
        assert smallest.n_states == len(answers)
    else:
        assert smallest.n_states >= len(answers)
    assert smallest.minimise() == smallest


@given(machines(states=4, symbols=2, outputs=2), st.integers(0, 999))
def test_the_word_that_tells_two_apart_is_the_shortest(machine, seed):
    other = random_machine(seed, 3, machine.n_symbols)
    word = machine.equivalent(other)
    longest = machine.n_states + other.n_states - 1
    apart = [each for each in words(machine.n_symbols, longest) if slow_run(machine, each) != slow_run(other, each)]
    if word is None:
        assert apart == []
    else:
        assert len(word) == len(apart[0])
        ours, theirs = slow_run(machine, word), slow_run(other, word)
        assert ours[-1] != theirs[-1]
        assert ours[:-1] == theirs[:-1]
    assert (other.equivalent(machine) is None) == (word is None)


@pytest.mark.parametrize("states", [1, 2, 9, 40])
def test_a_counter_is_told_apart_at_its_last_state_alone(states):
    transitions = [[(state + 1) % states] for state in range(states)]
    right, wrong = [[0]] * states, [[0]] * (states - 1) + [[1]]
    word = Machine.from_table(transitions, right).equivalent(Machine.from_table(transitions, wrong))
    assert word == (0,) * states


def test_machines_with_a_hundred_thousand_pairs_are_compared_in_seconds():
    big = random_machine(1, 100_000, outputs=2)
    names = numpy.random.default_rng(0).permutation(big.n_states)
    back = numpy.argsort(names)
    same = Machine(names[big.transitions[back]], big.outputs[back], int(names[0]))
    assert big.equivalent(same) is None
    cycles = [
        Machine.from_table([[(k + 1) % n] for k in range(n)], [[int(k == 0)] for k in range(n)]) for n in (330, 331)
    ]
    word = cycles[0].equivalent(cycles[1])
    assert word is not None
    assert len(word) == 331
    assert big == same
    assert hash(big) == hash(same)


@given(machines(states=4), st.integers(0, 999))
def test_a_product_gives_both_outputs(machine, seed):
    other = random_machine(seed, 3, machine.n_symbols, 4)
    both = machine.product(other)
    for word in words(machine.n_symbols, 4):
        pairs = zip(slow_run(machine, word), slow_run(other, word), strict=True)
        assert slow_run(both, word) == [a * other.n_outputs + b for a, b in pairs]


@given(machines(), st.randoms())
def test_the_names_of_states_do_not_count(machine, random):
    names = list(range(machine.n_states))
    random.shuffle(names)
    back = numpy.argsort(names)
    renamed = Machine(numpy.array(names)[machine.transitions[back]], machine.outputs[back], names[machine.start])
    assert renamed == machine
    assert hash(renamed) == hash(machine)
    changed = numpy.array(machine.outputs)
    changed[machine.start, 0] += 1
    assert Machine(machine.transitions, changed, machine.start) != machine
    assert machine != "a machine"


def test_equal_is_more_than_equivalent():
    one, two = Machine.from_table([[0]], [[1]]), Machine.from_table([[1], [0]], [[1], [1]])
    assert one != two
    assert one.equivalent(two) is None
    assert two.minimise() == one


def test_a_machine_cannot_be_changed():
    table = numpy.zeros((2, 2), int)
    machine = Machine.from_table(table, table)
    with pytest.raises(ValueError, match="read-only"):
        machine.transitions[0, 0] = 1
    with pytest.raises(AttributeError):
        machine.start = 1
    table[0, 0] = 1  # its own copy
    assert machine.transitions[0, 0] == 0
    assert repr(machine) == "Machine(states=2, symbols=2, outputs=1, start=0)"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[0, 1]], [[0, 0]]), r"transitions must hold states 0..0; got 0..1"),
        (([[0, -1]], [[0, 0]]), r"transitions must hold states 0..0; got -1..0"),
        (([0, 0], [[0, 0]]), r"transitions must be \(states, symbols\); got \(2,\)"),
        (([[0.5]], [[0]]), r"transitions must be integers; got float64"),
        ((numpy.zeros((0, 2), int), numpy.zeros((0, 2), int)), r"at least one state and one symbol; got \(0, 2\)"),
        (([[0]], [[0, 0]]), r"outputs must have the shape of transitions, \(1, 1\); got \(1, 2\)"),
        (([[0]], [[-1]]), r"outputs must be at least 0; got -1"),
        (([[0]], [[0]], 1), r"start must be a state, 0..0; got 1"),
        (([[0]], [[0]], "0"), r"start must be a state, 0..0; got '0'"),
    ],
)
def test_a_bad_table_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        Machine.from_table(*arguments)


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ([0, 1], r"tokens must be \(B, T\); got \(2,\)"),
        ([], r"tokens must be \(B, T\); got \(0,\)"),
        ([[0, 2]], r"tokens must be in 0..1; got 0..2"),
        ([[0, -1]], r"tokens must be in 0..1; got -1..0"),
        ([[0.0]], r"tokens must be integers; got float64"),
    ],
)
def test_bad_tokens_are_named(tokens, message):
    with pytest.raises(ValueError, match=message):
        Machine.from_table([[0, 0]], [[0, 1]]).run(tokens)


def test_machines_to_compare_read_the_same_symbols():
    one, two = Machine.from_table([[0]], [[0]]), Machine.from_table([[0, 0]], [[0, 0]])
    for compare in (one.equivalent, one.product):
        with pytest.raises(ValueError, match="other must read 1 symbols, as this machine does; got 2"):
            compare(two)
        with pytest.raises(TypeError, match="other must be a Machine; got int"):
            compare(3)
