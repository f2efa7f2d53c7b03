"""Until proved: train on random words, certify, train on the counterexample and on words near it, and again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from latchwork.automata.certify import certify
from latchwork.automata.findings import Finding, Proof, Unknown, from_dict, to_dict
from latchwork.automata.prune import prune_states
from latchwork.automata.sampler import Sampler
from latchwork.machines.machine import Machine
from latchwork.models import MinMaxRNC_LM
from latchwork.seeds import generator
from latchwork.tasks.task import IGNORE, Task
from latchwork.training.engine import Training
from latchwork.training.plan import Outcome, Plan, Step
from latchwork.training.plans.by_length import answer_loss
from latchwork.training.proof import ProofProtocol

KEPT = 64  # mistakes of a round that are trained on again, beside its counterexample
PINNED = 32  # counterexamples that are in every batch


class UntilProved(Plan):
    """Rounds of training and certifying.

    Each counterexample is in every batch from then on. While the network answers it wrongly, the wrong answers count in
    the loss as much as all others together. Half of the other words are variations of mistakes.
    """

    name = "until_proved"

    def __init__(self, task: Task, protocol: ProofProtocol, seed: int = 0) -> None:
        self.protocol, self.seed, self.clip = protocol, seed, protocol.clip
        self.learning_rate, self.no_answer = protocol.learning_rate, task.vocabulary
        self.machine = Machine.from_task(task)
        self.sampler = Sampler(self.machine, self.no_answer, protocol.even)
        self.began, self.spent = 0, 0.0  # the step and the seconds at which the round began
        self.steps, self.right, self.last = 0, 0, float("nan")  # of the round; without a mistake; the last loss
        self.pinned: list[list[int]] = []
        self.near: list[list[int]] = []
        self.rounds: list[dict[str, Any]] = []
        self.result: Finding = Unknown("nothing has been tried", 0, 0.0, advice="allow at least one round")

    def rate(self, step: int) -> float:
        rate = self.protocol.later_rate if self.rounds else self.protocol.learning_rate
        return rate * (1 - 0.9 * (step - self.began) / self.protocol.steps)

    def batches(self, step: int, rank: int, world: int) -> list[tuple[tuple[Tensor, Tensor, int], float]]:
        random, asked = generator(self.seed, "words", step), 0
        while not asked:
            length = round(2 * (self.protocol.length / 2) ** random.random())
            length = max(length, max(map(len, self.pinned), default=0))
            rows = max(1, self.protocol.tokens // length)
            tokens, targets = self.sampler.batch(random, rows, length, self.pinned, self.near)
            asked = int((targets != IGNORE).sum())
        first, last = rank * len(tokens) // world, (rank + 1) * len(tokens) // world
        tokens, targets, pinned = tokens[first:last], targets[first:last], max(0, len(self.pinned) - first)
        return [((tokens, targets, pinned), int((targets != IGNORE).sum()) / asked)]

    def loss(self, network: nn.Module, batch: tuple[Tensor, Tensor, int]) -> Outcome:
        device = next(network.parameters()).device
        tokens, targets, pinned = batch[0].to(device), batch[1].to(device), batch[2]
        logits = network(tokens)[0]
        outcome = answer_loss(logits, targets)
        wrong = (targets != IGNORE) & (logits.argmax(-1) != targets)
        wrong[pinned:] = False
        if outcome.right < outcome.asked and bool(wrong.any()):
            return replace(outcome, loss=outcome.loss + F.cross_entropy(logits[wrong], targets[wrong]))
        return outcome

    def observe(self, training: Training, step: Step) -> None:
        self.steps, self.last = step.number + 1 - self.began, step.loss
        self.right = self.right + 1 if step.right == step.asked else 0

    def due(self) -> bool:
        return self.right >= self.protocol.enough or self.steps >= self.protocol.steps

    def evaluate(self, training: Training) -> None:
        """Certify; the counterexample and more mistakes go into the data of the next round."""
        training.show(f"certifying after round {len(self.rounds) + 1}")
        limits = {name: getattr(self.protocol, name) for name in ("precision", "tolerance", "max_states")}
        whole, watch = training.whole_model(), lambda found, waiting: training.pause()
        assert isinstance(whole, MinMaxRNC_LM)
        model = self.certified(whole, len(self.rounds))
        result = certify(model, self.machine, no_answer=self.no_answer, watch=watch, **limits)
        described = {"steps": self.steps, "loss": self.last, "result": type(result).__name__, "states": result.states}
        if self.protocol.prune:
            described["d_state"] = model.config.resolved_backbone.d_state
        described["training_seconds"] = round(training.place.seconds - self.spent, 1)
        described["certify_seconds"] = round(result.seconds, 1)
        if not isinstance(result, Proof) and result.word:
            word = list(result.word)
            random = generator(self.seed, "mistakes", len(self.rounds))
            length = min(self.protocol.length, 2 * len(word) + 2)
            found = self.sampler.mistakes(whole, random, self.protocol.tries, length, [word])
            described |= {"word": word, "mistakes": len(found), "again": word in self.pinned}
            self.pinned = [*(each for each in self.pinned if each != word), word][-PINNED:]
            self.near = [*self.near, word, *found[:KEPT]][-16 * KEPT :]
        self.result = result
        self.rounds.append(described)
        training.tell(f"round {len(self.rounds)}: {self.steps} steps, loss {self.last:.4f}, {result}")
        self.began, self.steps, self.right, self.spent = training.place.step, 0, 0, training.place.seconds
        training.forget_moments()
        if isinstance(result, Proof):
            self.stopped = "proved"
        elif len(self.rounds) >= self.protocol.rounds:
            self.stopped = "all rounds"

    def certified(self, model: MinMaxRNC_LM, number: int) -> MinMaxRNC_LM:
        """The network that is certified in the round of this number: the one given, or it without idle units."""
        if not self.protocol.prune:
            return model
        length = max(self.protocol.length // 2, max(map(len, self.pinned), default=0))
        random, rows = generator(self.seed, "words to prune by", number), -(-self.protocol.prune // length)
        return prune_states(model, *self.sampler.batch(random, rows, length, self.pinned, self.near))

    def state(self) -> dict[str, Any]:
        names = ("began", "spent", "steps", "right", "last", "pinned", "near", "rounds")
        return {**{name: getattr(self, name) for name in names}, "result": to_dict(self.result)}

    def restore(self, state: Mapping[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, float("nan") if value is None else value)  # JSON has no NaN
        self.result = from_dict(state["result"], self.machine)

    def progress(self, step: int) -> tuple[float, float | None, str]:
        return len(self.rounds), self.protocol.rounds, f"round {len(self.rounds) + 1} step {self.steps}"
