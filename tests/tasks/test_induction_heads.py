import pytest

from latchwork.tasks import IGNORE, InductionHeads


@pytest.mark.parametrize("n", [1, 16, 300])
@pytest.mark.parametrize(("split", "latest"), [("train", 30), ("validation", 50), ("evaluation", 50)])
def test_there_are_two_recalls_one_early_and_one_at_the_end(n, split, latest):
    task = InductionHeads(n)
    assert task.vocabulary == n + 2
    tokens, targets = task.sample(split, 0, rows=600, length=700)
    recalls = tokens == task.recall
    assert (recalls.sum(1) == 2).all()
    assert recalls[:, -1].all()
    early = recalls.int().argmax(1)
    assert early.min() == 0
    assert early.max() == latest
    assert (targets[:, -1] == tokens.gather(1, early[:, None] + 1)[:, 0]).all()
    assert (targets[:, :-1] == IGNORE).all()
    assert (tokens != task.pad).all()


def test_a_short_sequence_has_its_early_recall_before_the_last_two_steps():
    task = InductionHeads(5)
    tokens, _ = task.sample("train", 0, rows=50, length=3)
    assert (tokens[:, [0, 2]] == task.recall).all()
    assert (tokens[:, 1] < 5).all()


def test_padding_is_a_token_of_its_own():
    task = InductionHeads(5)
    tokens, targets = task.sample("train", 0, rows=50)
    padded = tokens == task.pad
    assert padded.any()
    assert (targets[padded] == IGNORE).all()
    assert ((targets != IGNORE).sum(1) == 1).all()


def test_bad_input_names_its_argument():
    with pytest.raises(ValueError, match="n must be at least 1; got 0"):
        InductionHeads(0)
    with pytest.raises(ValueError, match="length must be at least 3"):
        InductionHeads(4).sample("train", 0, rows=1, length=2)
