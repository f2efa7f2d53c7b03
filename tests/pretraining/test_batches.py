import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pretraining_cases import make_corpus, tiny

from latchwork.pretraining.batches import carries, places, read_batches, rows_of, share, validation_batch
from latchwork.pretraining.config import BatchConfig
from latchwork.pretraining.corpus import Corpus


@pytest.fixture(scope="module")
def split(tmp_path_factory):
    return Corpus(make_corpus(tmp_path_factory.mktemp("corpus") / "c")).train


def config(accumulation=4, micro=3, tbptt=None, context=5):
    return tiny(batch=BatchConfig(micro=micro, context=context, accumulation=((0, accumulation),)), tbptt=tbptt)


def all_rows(batches, name="tokens"):
    return torch.cat([getattr(batch, name) for batch in batches])


@given(step=st.integers(0, 10**6), world=st.sampled_from([1, 2, 3, 4, 6, 12]), tbptt=st.sampled_from([None, 1, 4]))
def test_the_rows_of_a_step_are_the_same_however_many_processes_share_them(split, step, world, tbptt):
    values = config(tbptt=tbptt)
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
