"""Tasks: seeded samplers of token sequences with their answers, each beside its oracle."""

from latchwork.tasks.induction_heads import InductionHeads
from latchwork.tasks.latching import Latching
from latchwork.tasks.sequences import Sequences
from latchwork.tasks.task import BLOCK, IGNORE, Batch, Split, Task

__all__ = ["BLOCK", "IGNORE", "Batch", "InductionHeads", "Latching", "Sequences", "Split", "Task"]
