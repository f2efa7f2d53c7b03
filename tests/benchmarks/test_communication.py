"""The formulas of docs/tutorials/scale.md, against messages that were counted."""

import pytest

from communication import FORMULAS, SMALL, VOCABULARY, context_parallel, count, paper
from latchwork import MinMaxRNC_LM, MinMaxRNCLMConfig


@pytest.mark.slow
@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("strategy", FORMULAS)
def test_processes_exchange_what_the_formula_says(strategy, world):
    expected = FORMULAS[strategy](MinMaxRNC_LM(VOCABULARY, MinMaxRNCLMConfig.small(**SMALL)), 2, world)
    counted = count(strategy, world, 2)
    for name in expected.keys() - {"wire"}:
        assert counted[name] == expected[name]


def test_a_rank_of_context_parallelism_gives_what_the_formula_says():
    small = MinMaxRNC_LM(20, MinMaxRNCLMConfig.small())
    counted = 2 * (852 + 520)  # tests/models/test_context_parallel.py counts them on 2 and 3 processes
    assert context_parallel(small, rows=1) == counted


def test_all_gpus_together_do_the_work_of_one():
    one, eight = paper((1, 8))
    assert 8 * eight["TFLOP a step"] == pytest.approx(one["TFLOP a step"])
    assert one["wire GB, DDP"] == one["wire GB, FSDP"] == 0
    assert eight["state GB, FSDP"] < eight["state GB, DDP"] == one["state GB, DDP"]
