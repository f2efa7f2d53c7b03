"""The example of the page on state tracking, with a smaller group."""

import runpy
from pathlib import Path

import pytest
import torch

from latchwork.automata.findings import Proof
from latchwork.training import LengthCurriculum

SCRIPT = Path(__file__).parents[2] / "examples" / "learn_s5.py"


def test_the_example_learns_s3_and_proves_it():
    torch.set_num_threads(1)
    learn = runpy.run_path(str(SCRIPT))["learn"]
    learning, smaller, found = learn("S3", 3, LengthCurriculum(longest=12, tokens=512))
    assert learning.learnt
    assert smaller.config.backbone.d_state < 16 * 3
    assert isinstance(found, Proof)


def test_where_no_unit_follows_the_example_says_so():
    learn = runpy.run_path(str(SCRIPT))["learn"]
    with pytest.raises(SystemExit, match="steps after 1 steps: no unit follows it; try another seed"):
        learn("S3", 3, LengthCurriculum(longest=12, tokens=512, steps=1))
