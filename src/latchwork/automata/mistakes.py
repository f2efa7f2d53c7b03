"""Where a network, as run, is wrong on some words."""

from __future__ import annotations

import numpy
import torch

from latchwork.machines.machine import Machine
from latchwork.machines.words import states_before
from latchwork.models import MinMaxRNC_LM

Array = numpy.ndarray
AT_ONCE = 1 << 24  # logits of a batch


def first_mistake(
    model: MinMaxRNC_LM, machine: Machine, asked: Array, words: Array
) -> tuple[tuple[int, ...], int, int] | None:
    """The shortest beginning of any of the words to which the network, as run, gives another answer than the machine.

    asked: (states, symbols). Returns the word, what the network said at its end, and what the machine says.
    """
    device, best = model.embedding.weight.device, None
    rows = max(1, AT_ONCE // (words.shape[1] * model.vocab_size))
    for start in range(0, len(words), rows):
        part = words[start : start + rows]
        with torch.no_grad():
            said = model(torch.from_numpy(part).to(device))[0].argmax(-1).cpu().numpy()
        states = states_before(machine, part)
        expected = machine.outputs[states, part]
        wrong = (said != expected) & asked[states, part]
        step, row = (int(each[0]) for each in numpy.nonzero(wrong.T)) if wrong.any() else (part.shape[1], 0)
        if step < (part.shape[1] if best is None else len(best[0]) - 1):
            best = tuple(part[row, : step + 1].tolist()), int(said[row, step]), int(expected[row, step])
    return best
