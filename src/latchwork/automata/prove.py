"""Train a network until it is proved right, or say how far that went: counterexamples go back into the data."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy
import torch
from torch import Tensor, nn

from latchwork.automata.certify import Counterexample, Proof, Unknown, certify
from latchwork.machines.machine import Machine
from latchwork.machines.words import leads_to, random_words
from latchwork.models import MinMaxRNC_LM, MinMaxRNCLMConfig
from latchwork.seeds import generator, seed_everything
from latchwork.tasks.task import IGNORE, Task

Array = numpy.ndarray
KEPT = 64  # mistakes of a round that are trained on again, beside its counterexample


@dataclass(frozen=True, kw_only=True)
class ProofProtocol:
    """How `train_until_proved` trains.

    steps: of the optimiser in a round, at most; a round ends early after `enough` batches in a row without a mistake.
    rounds: of training and certifying, at most. tokens: of a batch. length: of its words, at most; short ones come as
    often as long ones, and more of them at once, since a counterexample is short. learning_rate: of Adam in the first
    round; it falls to a tenth within a round. later_rate: in later rounds. clip: of the gradient's norm. tries: random
    words among which more mistakes are looked for when there was a counterexample. precision, tolerance, max_states: of
    `certify`.
    """

    rounds: int = 20
    steps: int = 2000
    enough: int = 60
    tokens: int = 2048
    length: int = 64
    learning_rate: float = 3e-3
    later_rate: float = 1e-3
    clip: float = 1.0
    tries: int = 10_000
    precision: Literal["float32", "float64"] = "float32"
    tolerance: float = 0.0
    max_states: int = 2_000_000


@dataclass
class Attempt:
    """What came of it: the model, the last result, and for each round its steps, loss, result and seconds."""

    model: MinMaxRNC_LM
    result: Proof | Counterexample | Unknown
    rounds: list[dict[str, object]] = field(default_factory=list)
    seconds: float = 0.0


def train_until_proved(
    task: Task,
    config: MinMaxRNCLMConfig,
    *,
    seed: int = 0,
    protocol: ProofProtocol = ProofProtocol(),
    watch: Callable[[str], None] | None = None,
) -> Attempt:
    """Train on random words of the task's machine, certify, add the counterexample and words near it, and again.

    A word is drawn by going from state to state of the machine by symbols that are even among those after which an
    answer is still asked for; so that rare tokens come as often as others, unlike in the task's own distribution.
    """
    start = time.monotonic()
    machine, no_answer = Machine.from_task(task), task.vocabulary
    seed_everything(seed)
    random = generator(seed, "prove")
    model = MinMaxRNC_LM(task.vocabulary, config)
    sampler = _Sampler(machine, no_answer, random)
    attempt = Attempt(model, Unknown("nothing has been tried", 0, 0.0, advice="allow at least one round"))
    for number in range(protocol.rounds):
        began = time.monotonic()
        steps, loss = _train(model, sampler, protocol, protocol.later_rate if number else protocol.learning_rate)
        trained = time.monotonic()
        model.eval()
        attempt.result = certify(
            model,
            machine,
            no_answer=no_answer,
            precision=protocol.precision,
            tolerance=protocol.tolerance,
            max_states=protocol.max_states,
        )
        described: dict[str, object] = {
            "steps": steps,
            "loss": loss,
            "result": type(attempt.result).__name__,
            "states": attempt.result.states,
            "training_seconds": round(trained - began, 1),
            "certify_seconds": round(attempt.result.seconds, 1),
        }
        word = getattr(attempt.result, "word", None)
        if word is not None:
            described["word"] = list(word)
            sampler.add(word)
            length = min(protocol.length, 2 * len(word) + 2)
            described["mistakes"] = sampler.add_mistakes(model, protocol.tries, length)
        attempt.rounds.append(described)
        if watch is not None:
            watch(f"round {number + 1}: {steps} steps, loss {loss:.4f}, {attempt.result}")
        if isinstance(attempt.result, Proof):
            break
    attempt.seconds = time.monotonic() - start
    return attempt


class _Sampler:
    """Random words of a machine, and words near those on which a network was wrong."""

    def __init__(self, machine: Machine, no_answer: int, random: numpy.random.Generator) -> None:
        self.machine, self.random = machine, random
        self.asked = machine.outputs != no_answer
        self.live = leads_to(machine.transitions, self.asked)
        self.words: list[tuple[int, ...]] = []

    def add(self, word: tuple[int, ...]) -> None:
        """Keep a word, to draw words near it."""
        self.words.append(word)

    def add_mistakes(self, model: MinMaxRNC_LM, tries: int, length: int) -> int:
        """Keep words on which the model is wrong, out of some drawn at random; how many it was wrong on."""
        tokens, targets = self.batch(tries, length)
        with torch.no_grad():
            wrong = (model(tokens)[0].argmax(-1) != targets) & (targets != IGNORE)
        rows = wrong.any(1).nonzero().flatten().tolist()
        for row in rows[:KEPT]:
            self.add(tuple(tokens[row, : int(wrong[row].int().argmax()) + 1].tolist()))
        return len(rows)

    def batch(self, rows: int, length: int) -> tuple[Tensor, Tensor]:
        """Tokens and answers; half of the rows begin as a word of `add` does, with none, one or two symbols changed."""
        forced = numpy.full((rows, length), -1)
        for row in range(rows // 2 if self.words else 0):
            recent = self.words[-16 * KEPT :]
            word = list(recent[self.random.integers(len(recent))])[:length]
            for _ in range(self.random.integers(3)):
                word[self.random.integers(len(word))] = int(self.random.integers(self.machine.n_symbols))
            forced[row, : len(word)] = word
        tokens, states = random_words(self.machine, self.live, self.random, forced)
        targets = numpy.where(self.asked[states, tokens], self.machine.outputs[states, tokens], IGNORE)
        return torch.from_numpy(tokens), torch.from_numpy(targets)


def _train(model: MinMaxRNC_LM, sampler: _Sampler, protocol: ProofProtocol, rate: float) -> tuple[int, float]:
    """One round; the steps taken and the last loss."""
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    right, value = 0, float("nan")
    for step in range(protocol.steps):
        for group in optimizer.param_groups:
            group["lr"] = rate * (1 - 0.9 * step / protocol.steps)
        length = round(2 * (protocol.length / 2) ** sampler.random.random())
        tokens, targets = sampler.batch(max(1, protocol.tokens // length), length)
        logits, _ = model(tokens)
        kept = targets != IGNORE
        if not kept.any():
            continue
        loss = nn.functional.cross_entropy(logits[kept], targets[kept])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), protocol.clip)
        optimizer.step()
        value = float(loss.detach())
        wrong = bool((logits[kept].argmax(-1) != targets[kept]).any())
        right = 0 if wrong else right + 1
        if right >= protocol.enough:
            return step + 1, value
    return protocol.steps, value
