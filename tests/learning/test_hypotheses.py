"""What machines leave open, where they differ, and what merging finds."""

import time

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latchwork.automata import Machine
from latchwork.learning.hypotheses import differences, only_seen, undecided_words
from latchwork.learning.merging import GaveUp, Merging, merge
from latchwork.learning.traces import Traces, read, score


def machine_of(seed, states=4, symbols=2):
    random = numpy.random.default_rng(seed)
    return Machine(random.integers(0, states, (states, symbols)), random.integers(0, 2, (states, symbols)))


def traces_of(machine, seed, count=20):
    random = numpy.random.default_rng((seed, 7))
    words = [random.integers(0, machine.n_symbols, random.integers(1, 9)) for _ in range(count)]
    return Traces(words, [machine.run(word[None])[0] for word in words], True)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6))
def test_only_seen_agrees_on_the_traces_and_commits_to_nothing_more(seed):
    machine = machine_of(seed)
    traces = traces_of(machine, seed)
    seen = only_seen(machine, traces, 2)
    assert score(seen, traces)[0].accuracy == 1
    assert differences(machine, seen, 2) == []
    prefixes = {tuple(word[: k + 1].tolist()) for word in traces.tokens for k in range(len(word))}
    for word in undecided_words(seen, 2):
        assert word not in prefixes
        assert seen.run([word])[0, -1] == 2


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6))
def test_the_first_difference_is_the_shortest_word_that_tells_two_machines_apart(seed):
    one, other = machine_of(seed), machine_of(seed + 1)
    word, found = one.equivalent(other), differences(one, other, 2)
    assert (word is None) == (found == [])
    if word is not None:
        assert len(found[0]) == len(word)
        assert all(one.run([each])[0, -1] != other.run([each])[0, -1] for each in found)


@pytest.mark.parametrize("how", [Merging(), Merging(outputs="mealy"), Merging(order="edsm")], ids=str)
@pytest.mark.parametrize("seed", range(5))
def test_without_noise_merging_contradicts_no_trace(how, seed):
    machine = machine_of(seed)
    traces = traces_of(machine, seed, 60)
    assert score(merge(traces, 2, 2, how), traces)[0].accuracy == 1


def test_merging_gives_up_in_time_and_in_size():
    traces = traces_of(machine_of(1), 1, 60)
    with pytest.raises(GaveUp, match="time"):
        merge(traces, 2, 2, Merging(), deadline=time.monotonic() - 1)
    with pytest.raises(GaveUp, match="states"):
        merge(traces, 2, 2, Merging(states=1))


def test_one_trace_with_two_labels_is_no_error():
    _, traces = read(["ab", "ab", "ab"], [0, 0, 1], None, None)
    assert merge(traces, 2, 2, Merging(noise=0.1)).run([[0, 1]])[0, -1] == 0
