"""Random words of a machine with its answers, and words near those on which a network was wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy
import torch
from torch import Tensor, nn

from latchwork.machines.machine import Machine
from latchwork.machines.words import even_moves, leads_to, random_words
from latchwork.tasks.task import IGNORE

Word = Sequence[int]


class Sampler:
    """Draws words by going from state to state of the machine, and answers them.

    Symbols are even among those after which an answer is still asked for: rare tokens come as often as others, unlike
    in the task's own distribution. no_answer: the output that means that no answer is asked for. even: among "symbols",
    or as `even_moves` says, among the states that may follow.
    """

    def __init__(self, machine: Machine, no_answer: int, even: Literal["symbols", "states"] = "symbols") -> None:
        self.machine = machine
        self.asked = machine.outputs != no_answer
        self.live = leads_to(machine.transitions, self.asked)
        self.weights = even_moves(machine, self.live) if even == "states" else None

    def batch(
        self,
        random: numpy.random.Generator,
        rows: int,
        length: int,
        pinned: Sequence[Word] = (),
        near: Sequence[Word] = (),
    ) -> tuple[Tensor, Tensor]:
        """Tokens and answers, (B, length) each.

        pinned: the first rows start with these words as they are. near: half of the other rows start with one of these
        words in which none, one or two symbols are changed. B is `rows`, or more if `pinned` needs it.
        """
        rows = max(rows, len(pinned) + 1)
        forced = numpy.full((rows, length), -1)
        for row, word in enumerate(pinned):
            forced[row, : len(word)] = list(word)[:length]
        for row in range(len(pinned), len(pinned) + (rows - len(pinned)) // 2 if near else 0):
            chosen = list(near[int(random.integers(len(near)))])[:length]
            for _ in range(random.integers(3)):
                chosen[random.integers(len(chosen))] = int(random.integers(self.machine.n_symbols))
            forced[row, : len(chosen)] = chosen
        tokens, states = random_words(self.machine, self.live, random, forced, self.weights)
        targets = numpy.where(self.asked[states, tokens], self.machine.outputs[states, tokens], IGNORE)
        return torch.from_numpy(tokens), torch.from_numpy(targets)

    def mistakes(
        self, model: nn.Module, random: numpy.random.Generator, tries: int, length: int, near: Sequence[Word] = ()
    ) -> list[list[int]]:
        """Words, out of some drawn at random, on which the model is wrong, each cut after its first wrong answer."""
        tokens, targets = self.batch(random, tries, length, near=near)
        with torch.no_grad():
            wrong = (model(tokens)[0].argmax(-1) != targets) & (targets != IGNORE)
        rows = wrong.any(1).nonzero().flatten().tolist()
        return [tokens[row, : int(wrong[row].int().argmax()) + 1].tolist() for row in rows]
