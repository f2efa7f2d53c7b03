"""What holds of every task."""

from itertools import islice

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from task_cases import every_task

from latchwork.tasks import IGNORE, Batch, Latching, Parity, Split

TASKS = every_task()
SHORTEST = 3  # of a sequence of InductionHeads


def joined(stream) -> Batch:
    return Batch(*(torch.cat(each, 1) for each in zip(*stream, strict=True)))


def same(a: Batch, b: Batch) -> bool:
    return torch.equal(a.tokens, b.tokens) and torch.equal(a.targets, b.targets)


@pytest.fixture(params=TASKS, ids=lambda task: task.name)
def task(request):
    return request.param


@pytest.mark.parametrize("split", ["train", "validation", "evaluation"])
def test_answers_equal_the_oracle(task, split):
    @settings(max_examples=8)
    @given(seed=st.integers(0, 2**64), rows=st.integers(0, 3), length=st.integers(SHORTEST, 60))
    def check(seed, rows, length):
        batch = task.sample(split, seed, rows, length)
        assert batch.tokens.shape == batch.targets.shape == (rows, length if rows else 0)
        assert batch.targets.tolist() == [task.oracle(row) for row in batch.tokens.tolist()]

    check()


def test_answers_equal_the_oracle_from_block_to_block(task):
    batch = task.sample("validation", 1, rows=1, length=1026)
    assert batch.targets[0].tolist() == task.oracle(batch.tokens[0].tolist())


def test_answers_equal_the_oracle_in_rows_beyond_a_slab(task):
    batch = task.sample("train", 2, rows=1030, length=12)
    assert batch.targets.tolist() == [task.oracle(row) for row in batch.tokens.tolist()]


@pytest.mark.parametrize("chunk", [1, 7, 512, 513, 5000])
def test_a_stream_has_the_content_of_the_sample(task, chunk):
    whole = task.sample("validation", 3, rows=2, length=1030)
    chunks = list(task.stream("validation", 3, rows=2, length=1030, chunk=chunk))
    assert {each.tokens.shape[1] for each in chunks[:-1]} <= {chunk}
    assert all(each.tokens.dtype == each.targets.dtype == torch.int64 for each in [whole, *chunks])
    assert all(each.tokens.is_contiguous() and each.targets.is_contiguous() for each in chunks)
    assert same(joined(chunks), whole)


def test_a_stream_of_uneven_lengths_has_the_content_of_the_sample(task):
    assert same(joined(task.stream("validation", 4, rows=3, chunk=700)), task.sample("validation", 4, rows=3))


def test_a_long_stream_starts_at_once(task):
    first, second = islice(task.stream("evaluation", 0, rows=1, chunk=500), 2)
    assert first.tokens.shape == second.targets.shape == (1, 500)


def test_the_seed_and_the_split_decide_the_content(task):
    batch = task.sample("train", 5, rows=8, length=100)
    assert same(batch, task.sample("train", 5, rows=8, length=100))
    assert not torch.equal(batch.tokens, task.sample("train", 6, rows=8, length=100).tokens)
    assert not torch.equal(batch.tokens, task.sample("validation", 5, rows=8, length=100).tokens)


def test_lengths_are_those_of_the_split_and_nothing_is_asked_after_the_end(task):
    split = task.splits["train"]
    batch = task.sample("train", 7, rows=50)
    lengths = task._lengths("train", 7, 50, None)
    assert lengths.min() >= split.shortest
    assert lengths.max() <= split.longest
    assert len(set(lengths)) > 1 or split.shortest == split.longest
    assert batch.tokens.shape == (50, lengths.max())
    for length, tokens, targets in zip(lengths, *batch, strict=True):
        assert (tokens[length:] == task.pad).all()
        assert (targets[length:] == IGNORE).all()
    for length, tokens, targets in list(zip(lengths, *batch, strict=True))[:4]:
        assert targets[:length].tolist() == task.oracle(tokens[:length].tolist())


def test_tokens_and_answers_are_within_the_vocabulary(task):
    batch = task.sample("train", 8, rows=200)
    asked = batch.targets[batch.targets != IGNORE]
    assert batch.tokens.min() >= 0
    assert batch.tokens.max() < task.vocabulary
    assert len(asked) > 0
    assert asked.min() >= 0
    assert asked.max() < task.vocabulary


def test_no_rows_and_one_row(task):
    assert task.sample("train", 0, rows=0).tokens.shape == (0, 0)
    assert list(task.stream("train", 0, rows=0)) == []
    assert task.best_constant("train", rows=0) == 0.0
    assert len(task.sample("train", 0, rows=1).tokens) == 1


def test_the_best_constant_is_the_share_of_the_most_frequent_answer():
    task = Latching(3)
    first = task.sample("train", 9, rows=40, length=10).tokens[:, 0]
    assert task.best_constant("train", 9, rows=40, length=10) == first.bincount().max().item() / 40


def test_a_split_says_how_many_and_how_long():
    task = Parity(splits={"only": Split(sequences=4, shortest=6, longest=6)})
    assert task.sample("only", 0).tokens.shape == (4, 6)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("test", 0), "split must be one of train, validation, evaluation; got 'test'"),
        (("train", -1), "seed must be an integer of at least 0; got -1"),
        (("train", 0.5), "seed must be an integer of at least 0; got 0.5"),
        (("train", 0, -1), "rows must be at least 0; got -1"),
        (("train", 0, 1, 0), "length must be at least 1; got 0"),
    ],
)
def test_bad_input_names_its_argument(arguments, complaint):
    with pytest.raises(ValueError, match=complaint):
        Latching(4).sample(*arguments)


def test_a_chunk_has_a_step():
    with pytest.raises(ValueError, match="chunk must be at least 1; got 0"):
        next(Latching(4).stream("train", 0, chunk=0))


def test_the_expected_constant_is_near_the_best_of_a_large_sample(task):
    if task.name == "sequences(60, defined)":
        pytest.skip("powers of a matrix of 3,721 states take minutes, and fewer show the same")
    split = task.splits["train"]
    length = max(3, (split.shortest + split.longest) // 2)
    found = task.best_constant("train", 5, rows=2000, length=length)
    assert task.expected_constant("train", length) == pytest.approx(found, abs=0.06)
