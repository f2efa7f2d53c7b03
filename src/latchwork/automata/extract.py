"""From a network to the machine that it is."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy

from latchwork.automata.step import Stepper
from latchwork.machines.machine import Machine
from latchwork.models import MinMaxRNC_LM

AT_ONCE = 256  # states whose steps are taken together


class StateExplosion(RuntimeError):
    """A network has more states than were allowed. reached: how many were found; waiting: not yet followed."""

    def __init__(self, reached: int, waiting: int) -> None:
        super().__init__(
            f"{reached:,} states and {waiting:,} of them not followed yet: allow more by max_states, or train with "
            "levels, fewer state scalars or no output gate"
        )
        self.reached, self.waiting = reached, waiting


def extract(
    model: MinMaxRNC_LM,
    max_states: int = 100_000,
    *,
    symbols: int | None = None,
    watch: Callable[[int, int], None] | None = None,
) -> Machine:
    """The machine whose states are all those that the network can reach, bit for bit; its outputs are the answers.

    Breadth first, every step computed one way (automata/step.py). Raises StateExplosion beyond max_states: it does not
    guess. symbols: the number of input symbols; by default all tokens. watch: called with the number of states
    found and of those to follow. The machine is not minimal: see `Machine.minimise`.
    """
    if max_states < 1:
        raise ValueError(f"max_states must be at least 1; got {max_states}")
    stepper = Stepper(copy.deepcopy(model).eval(), symbols)
    keys = [stepper.key(stepper.start)]
    number = {keys[0]: 0}
    transitions: list[list[int]] = []
    outputs: list[numpy.ndarray] = []
    while len(transitions) < len(keys):
        part = keys[len(transitions) : len(transitions) + AT_ONCE]
        following, answers = stepper.follow(part)
        outputs.append(answers)
        for row in following:
            for key in row:
                if key not in number:
                    number[key] = len(keys)
                    keys.append(key)
            transitions.append([number[key] for key in row])
        if len(keys) > max_states:
            raise StateExplosion(len(keys), len(keys) - len(transitions))
        if watch is not None:
            watch(len(keys), len(keys) - len(transitions))
    return Machine.from_table(transitions, numpy.concatenate(outputs))
