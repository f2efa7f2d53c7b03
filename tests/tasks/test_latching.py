import pytest

from latchwork.tasks import Latching


@pytest.mark.parametrize("n", [1, 4, 52, 512])
@pytest.mark.parametrize("distractors", ["others", "all"])
def test_the_first_token_is_one_to_remember_and_the_others_are_those_of_the_variant(n, distractors):
    task = Latching(n, distractors)
    assert task.vocabulary == 5 * n
    tokens, targets = task.sample("train", 0, rows=400, length=600)
    assert (targets == tokens[:, :1]).all()
    first, rest = tokens[:, 0], tokens[:, 1:]
    assert first.max() < n
    assert len(first.unique()) > n / 2
    assert rest.min() == (n if distractors == "others" else 0)
    assert rest.max() == 5 * n - 1
    counts = rest.flatten().bincount(minlength=5 * n)[n if distractors == "others" else 0 :].double()
    assert ((counts - counts.mean()).abs() < 6 * counts.mean().sqrt()).all()


def test_the_data_sets_are_those_of_the_paper():
    splits = Latching(4).splits
    assert [(each.sequences, each.shortest, each.longest) for each in splits.values()] == [
        (20_000, 256, 512),
        (1_000, 1024, 2048),
        (1_000, 2**20, 2**20),
    ]


def test_bad_input_names_its_argument():
    with pytest.raises(ValueError, match="n must be at least 1; got 0"):
        Latching(0)
    with pytest.raises(ValueError, match="distractors must be 'others' or 'all'; got 'none'"):
        Latching(4, "none")
