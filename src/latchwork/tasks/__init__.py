"""Tasks: seeded samplers of token sequences with their answers, each beside its oracle."""

from latchwork.tasks.automaton import Automaton
from latchwork.tasks.flip_flop import FlipFlop
from latchwork.tasks.groups import CycleNavigation, Cyclic, Parity, Transformations, WordProblem
from latchwork.tasks.induction_heads import InductionHeads
from latchwork.tasks.last_step import LastStep
from latchwork.tasks.latching import Latching
from latchwork.tasks.make import TASKS, make_task
from latchwork.tasks.modular_arithmetic import ModularArithmetic
from latchwork.tasks.regular import EvenPairs, Regular, Tomita
from latchwork.tasks.sequences import Sequences
from latchwork.tasks.task import BLOCK, IGNORE, Batch, Split, Task

__all__ = [
    "BLOCK",
    "IGNORE",
    "TASKS",
    "Automaton",
    "Batch",
    "CycleNavigation",
    "Cyclic",
    "EvenPairs",
    "FlipFlop",
    "InductionHeads",
    "LastStep",
    "Latching",
    "ModularArithmetic",
    "Parity",
    "Regular",
    "Sequences",
    "Split",
    "Task",
    "Tomita",
    "Transformations",
    "WordProblem",
    "make_task",
]
