from dataclasses import replace

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pretraining_cases import make_corpus, tiny

from latchwork.data.corpus import Corpus
from latchwork.training.config import BatchConfig
from latchwork.training.windows import (
    carries,
    places,
    read_batches,
    rows_of,
    share,
    validation_batch,
    windows_before,
)


@pytest.fixture(scope="module")
def split(tmp_path_factory):
    return Corpus(make_corpus(tmp_path_factory.mktemp("corpus") / "c")).train


def config(accumulation=4, micro=3, tbptt=None, context=5, order="random"):
    batch = BatchConfig(micro=micro, context=context, accumulation=((0, accumulation),), order=order)
    return tiny(batch=batch, tbptt=tbptt)


def all_rows(batches, name="tokens"):
    return torch.cat([getattr(batch, name) for batch in batches])


@given(
    step=st.integers(0, 10**6),
    world=st.sampled_from([1, 2, 3, 4, 6, 12]),
    tbptt=st.sampled_from([None, 1, 4]),
    order=st.sampled_from(["random", "epochs"]),
)
def test_the_rows_of_a_step_are_the_same_however_many_processes_share_them(split, step, world, tbptt, order):
    values = config(tbptt=tbptt, order=order)
    alone = read_batches(values, split, step)
    shared = [read_batches(values, split, step, rank, world) for rank in range(world)]
    assert all(len(batch.tokens) <= values.batch.micro for batches in shared for batch in batches)
    assert len({tuple(len(batch.tokens) for batch in batches) for batches in shared}) == 1
    for name in ("tokens", "targets", *(["reset"] if tbptt else [])):
        together = torch.cat([all_rows(batches, name) for batches in shared])
        assert torch.equal(together, all_rows(alone, name))


def test_targets_are_the_tokens_that_follow_in_the_text(split):
    values = config()
    starts = places(values, len(split), 7)
    batches = read_batches(values, split, 7)
    for row, start in enumerate(starts):
        text = split.read(int(start), 6)
        assert all_rows(batches)[row].tolist() == text[:-1].tolist()
        assert all_rows(batches, "targets")[row].tolist() == text[1:].tolist()


def test_every_place_is_drawn_and_steps_differ():
    values = config(accumulation=50)
    drawn = numpy.concatenate([places(values, 9, step) for step in range(4)])
    assert sorted(set(drawn.tolist())) == [0, 1, 2, 3]
    assert places(values, 1000, 0).tolist() != places(values, 1000, 1).tolist()
    assert places(values, 6, 0).tolist() == [0] * 150  # one window fits


@given(
    tokens=st.integers(6, 90), context=st.integers(1, 5), tbptt=st.sampled_from([None, 1, 2]), seed=st.integers(0, 9)
)
def test_in_an_epoch_no_token_is_read_twice_and_fewer_than_two_windows_are_not_read(tokens, context, tbptt, seed):
    stream = tbptt or 1
    length = stream * context
    if length >= tokens:
        return
    values = replace(config(accumulation=1, micro=1, tbptt=tbptt, context=context, order="epochs"), seed=seed)
    windows = max(1, (tokens - length) // length)
    epochs = []
    for epoch in range(3):
        steps = range(epoch * windows * stream, (epoch + 1) * windows * stream)
        starts = numpy.concatenate([places(values, tokens, step) for step in steps])
        read = (starts[:, None] + numpy.arange(context)).ravel()
        assert len(set(read.tolist())) == len(read) > tokens - 1 - 2 * length
        assert read.min() >= 0
        assert read.max() < tokens - 1  # the last is a target alone
        epochs.append(starts.tolist())
    if windows > 20:
        assert epochs[0] != epochs[1] != epochs[2]


@given(
    changes=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 4)), max_size=3, unique_by=lambda each: each[0]),
    tbptt=st.sampled_from([None, 1, 3]),
)
def test_windows_are_numbered_without_a_gap_where_the_number_of_rows_changes(changes, tbptt):
    stream = tbptt or 1
    pieces = ((0, 2), *sorted((stream * start, times) for start, times in changes))
    values = tiny(batch=BatchConfig(micro=3, context=5, accumulation=pieces, order="epochs"), tbptt=tbptt)
    expected = 0
    for step in range(0, 12 * stream, stream):
        assert windows_before(values, step) == expected
        expected += rows_of(values, step)


def test_an_order_that_is_none_or_does_not_fit_is_an_error():
    with pytest.raises(ValueError, match="order must be 'random' or 'epochs'; got 'sorted'"):
        config(order="sorted")
    with pytest.raises(ValueError, match=r"must change at multiples of tbptt, 3; got \[0, 4\]"):
        tiny(batch=BatchConfig(micro=2, context=5, accumulation=((0, 1), (4, 2)), order="epochs"), tbptt=3)


def test_under_tbptt_windows_follow_each_other_and_resets_are_the_starts_of_documents(split):
    values = config(tbptt=3)
    starts = [places(values, len(split), step) for step in range(9)]
    for step in range(9):
        assert carries(values, step) == (step % 3 > 0)
        if step % 3:
            assert (starts[step] == starts[step - 1] + 5).all()
        reset = all_rows(read_batches(values, split, step), "reset")
        expected = [[int(start) + t in set(split.starts.tolist()) for t in range(5)] for start in starts[step]]
        assert reset.tolist() == expected
    assert (starts[3] != starts[2] + 5).any()


def test_where_the_number_of_rows_changes_nothing_is_carried():
    values = tiny(batch=BatchConfig(micro=2, context=5, accumulation=((0, 1), (4, 2))), tbptt=100)
    assert [rows_of(values, step) for step in (3, 4)] == [2, 4]
    assert [step for step in range(1, 8) if not carries(values, step)] == [4]


def test_validation_batches_are_the_same_each_time_and_differ_from_each_other(split):
    first, again, other = (validation_batch(config(), split, number) for number in (0, 0, 1))
    assert torch.equal(first.tokens, again.tokens)
    assert not torch.equal(first.tokens, other.tokens)
    assert torch.equal(first.tokens[:, 1:], first.targets[:, :-1])


def test_what_does_not_fit_is_an_error(split):
    with pytest.raises(ValueError, match="at least 16 tokens, for 3 windows of 5"):
        places(config(tbptt=3), 15, 0)
    with pytest.raises(ValueError, match="multiple of the 5 processes; it is 12"):
        share(12, 0, 5)
    with pytest.raises(ValueError, match="more than 100000 tokens"):
        validation_batch(config(context=100_000), split, 0)
