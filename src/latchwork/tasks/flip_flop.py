"""The flip-flop language (Liu et al. 2023): at a read, say the bit that was written last."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count

import numpy

from latchwork.machines import Machine
from latchwork.tasks.latching import EVALUATION_LENGTH
from latchwork.tasks.task import BLOCK, IGNORE, NEVER, Array, Random, Split, Task, make_machine

WRITE, READ, SKIP = 2, 3, 4  # the tokens after the bits 0 and 1
NAMES = ("0", "1", "write", "read", "ignore")
SPARSE = 0.98  # the share of instructions to ignore at evaluation
PAIRS = BLOCK // 2
SPLITS = {
    "train": Split(sequences=20_000, shortest=512, longest=512),
    "validation": Split(sequences=1_000, shortest=1024, longest=2048),
    "evaluation": Split(sequences=1_000, shortest=EVALUATION_LENGTH, longest=EVALUATION_LENGTH),
}


class FlipFlop(Task):
    """FFLM(p): an instruction, write = 2, read = 3 or ignore = 4, then a bit, and so on. The first is a write.

    p: the probability of an ignore, 0.98 in the split "evaluation"; a read and a write are as likely as each other.
    The bit after a read is the one last written; it is the answer at the read itself, and no other answer is asked for.
    """

    vocabulary = 5

    def __init__(self, p: float, *, splits: Mapping[str, Split] | None = None) -> None:
        if not 0 <= p < 1:
            raise ValueError(f"p must be at least 0 and below 1; got {p}")
        self.name, self.p, self.splits = f"fflm({float(p)})", p, SPLITS if splits is None else splits

    def blocks(self, split: str, lengths: Array, random: Random) -> Iterator[tuple[Array, Array]]:
        """Twice the step of the last write, plus its bit, is a running maximum."""
        p = SPARSE if split == "evaluation" else self.p
        shape = (len(lengths), PAIRS)
        places = numpy.arange(2, 2 * PAIRS + 2, 2, dtype=numpy.uint16)
        memory = numpy.zeros(shape, numpy.uint8)
        for block in count():
            u = random("instructions", block).random(shape, numpy.float32)
            write, read = u >= (1 + p) / 2, (u >= p) & (u < (1 + p) / 2)
            if block == 0:
                write[:, 0], read[:, 0] = True, False
            bits = random("bits", block).integers(0, 2, shape, numpy.uint8)
            written = numpy.where(write, places + bits, numpy.uint16(0))
            written[:, 0] = numpy.maximum(written[:, 0], memory[:, -1])  # from the block before
            memory = (numpy.maximum.accumulate(written, axis=1) & 1).astype(numpy.uint8)
            tokens = numpy.empty((len(lengths), BLOCK), numpy.uint8)
            tokens[:, 0::2] = SKIP - 2 * write.view(numpy.uint8) - read.view(numpy.uint8)
            tokens[:, 1::2] = numpy.where(read, memory, bits)
            answers = numpy.full((len(lengths), BLOCK), IGNORE, numpy.int16)
            answers[:, 0::2] = numpy.where(read, memory, numpy.int16(IGNORE))
            yield tokens, answers

    def machine(self) -> Machine:
        """The start, "a bit to write", and for each bit held: "an instruction", "the bit itself", "any bit"."""
        start, to_write, instruction, read, skipped = 0, 1, (2, 3), (4, 5), (6, 7)
        transitions, outputs = numpy.full((8, self.vocabulary), NEVER), numpy.full((8, self.vocabulary), IGNORE)
        transitions[start, WRITE] = to_write
        for bit in (0, 1):
            transitions[to_write, bit] = instruction[bit]
            transitions[instruction[bit], [WRITE, READ, SKIP]] = to_write, read[bit], skipped[bit]
            outputs[instruction[bit], READ] = bit
            transitions[read[bit], bit] = instruction[bit]
            transitions[skipped[bit], [0, 1]] = instruction[bit]
        return make_machine(self, transitions, outputs, start, NAMES, (*NAMES, "none"))

    def oracle(self, tokens: Sequence[int]) -> list[int]:
        """Keep the bit that follows a write; give it at a read."""
        answers, memory = [], 0
        for before, token in zip([READ, *tokens], tokens, strict=False):
            memory = token if before == WRITE else memory
            answers.append(memory if token == READ else IGNORE)
        return answers
