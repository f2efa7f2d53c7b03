import pytest
from hypothesis import given
from hypothesis import strategies as st

from latchwork.tasks import IGNORE, ModularArithmetic

TASK = ModularArithmetic()
SYMBOLS = "01234+-*"


@pytest.mark.parametrize(("text", "value"), [("2", 2), ("3+4", 2), ("1-3*2", 0), ("4*4-2*3*2+1", 0), ("0-1", 4)])
def test_products_come_before_sums(text, value):
    assert TASK.oracle([SYMBOLS.index(symbol) for symbol in text])[-1] == value


@given(seed=st.integers(0, 1000))
def test_every_prefix_that_ends_in_a_digit_has_its_value(seed):
    tokens, targets = TASK.sample("train", seed, rows=1, length=15)
    text = "".join(SYMBOLS[token] for token in tokens[0])
    assert all(symbol in ("01234", "+-*")[step % 2] for step, symbol in enumerate(text))
    assert targets[0, 1::2].unique().tolist() == [IGNORE]
    # Python's own arithmetic, of digits and operators that we drew
    assert targets[0, 0::2].tolist() == [eval(text[: step + 1]) % 5 for step in range(0, 15, 2)]
