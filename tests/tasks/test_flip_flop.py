import pytest

from latchwork.tasks import IGNORE, FlipFlop
from latchwork.tasks.flip_flop import READ, SKIP, WRITE


@pytest.mark.parametrize(("split", "p"), [("train", 0.8), ("validation", 0.8), ("evaluation", 0.98)])
def test_instructions_and_bits_alternate_with_their_probabilities(split, p):
    task = FlipFlop(0.8)
    assert task.vocabulary == 5
    tokens, targets = task.sample(split, 0, rows=200, length=2000)
    instructions, bits = tokens[:, 0::2], tokens[:, 1::2]
    assert (instructions[:, 0] == WRITE).all()
    assert set(bits.unique().tolist()) == {0, 1}
    later = instructions[:, 1:]
    for instruction, chance in ((SKIP, p), (READ, (1 - p) / 2), (WRITE, (1 - p) / 2)):
        expected = chance * later.numel()
        assert abs((later == instruction).sum() - expected) < 5 * (expected * (1 - chance)) ** 0.5
    assert (bits[instructions != READ].float().mean() - 0.5).abs() < 0.01
    assert ((targets != IGNORE) == (tokens == READ)).all()


def test_the_bit_after_a_read_is_the_answer_and_the_last_one_written():
    tokens, targets = FlipFlop(0.5).sample("train", 0, rows=20, length=1500)
    read = tokens[:, :-1] == READ
    assert (tokens[:, 1:][read] == targets[:, :-1][read]).all()
    for row, answers in zip(tokens.tolist(), targets.tolist(), strict=True):
        for step, answer in enumerate(answers):
            if answer != IGNORE:
                writes = [i for i in range(0, step, 2) if row[i] == WRITE]
                assert answer == row[writes[-1] + 1]


def test_the_oracle_knows_a_hand_made_case():
    assert FlipFlop(0.8).oracle([WRITE, 1, SKIP, 0, READ, 1, READ]) == [IGNORE] * 4 + [1, IGNORE, 1]


@pytest.mark.parametrize("p", [-0.1, 1.0])
def test_bad_input_names_its_argument(p):
    with pytest.raises(ValueError, match=f"p must be at least 0 and below 1; got {p}"):
        FlipFlop(p)
