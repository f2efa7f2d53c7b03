"""How much Python of ours runs in a training step. A count, since a time depends on the machine."""

import sys
from pathlib import Path

import torch

import latchwork
from latchwork import MinMaxRNC_LM, MinMaxRNCLMConfig

MOST = 250
ROOT = str(Path(latchwork.__file__).parent)


def count_calls(function):
    """Frames of this package that a call enters, comprehensions included."""
    found = []

    def record(frame, event, argument):
        if event == "call" and frame.f_code.co_filename.startswith(ROOT):
            found.append(frame.f_code.co_name)

    before = sys.getprofile()
    sys.setprofile(record)
    try:
        function()
    finally:
        sys.setprofile(before)
    return len(found)


def test_a_training_step_of_the_small_preset_makes_few_calls_in_python():
    model, tokens = MinMaxRNC_LM(20, MinMaxRNCLMConfig.small()).train(), torch.randint(20, (16, 64))

    def step():
        loss, _ = model.loss(tokens, tokens)
        loss.backward()

    step()
    assert 50 < count_calls(step) <= MOST
