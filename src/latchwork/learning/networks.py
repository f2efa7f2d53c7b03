"""Train a network to be a machine, prune it, and prove it.

Units that send whole levels to places ("transformation") start with one level, 1, at place 0 and 0 elsewhere. Each unit
is then a machine whose state is the place of the 1: what the readout sees is one-hot, and a unit has as many states as
places. With all places filled, as for permutations, levels meet and hide each other, and machines that are not groups
are rarely learnt: see studies/learning/README.md.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy
import torch

from latchwork.automata import Counterexample, Machine, Proof, Unknown, certify
from latchwork.automata.prune import freeze_moves, keep_followers, prune_states
from latchwork.automata.settle import settle_choices
from latchwork.machines.words import leads_to, random_words, states_before
from latchwork.models import MinMaxRNC_LM, MinMaxRNCLMConfig
from latchwork.modules.cells import TransformationCell
from latchwork.modules.neuron import MinMaxNeuron
from latchwork.tasks import Task
from latchwork.tasks.task import IGNORE, Array, Batch, Random
from latchwork.training import LengthCurriculum, learn_by_length

SPARE = 2  # places more than a machine has states
TOKENS = 6_000  # of the words that pruning looks at
BY_LENGTH = LengthCurriculum(threshold=0.98)
Tell = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class NetworkPlan:
    """The shape of a network, and how it is trained.

    degree: places of a unit. layers: of units, one above the other, for machines that are a cascade. conv: "closed", a
    gated convolution that shows little of the step before at first, or "basic", the paper's, where a unit must see what
    another was before this step. start: "one_hot" as above, for any machine; "levels", a level of its own at every
    place, for groups. patience: steps at one length after which training starts again with another seed. rounds: of
    certifying and training on counterexamples.
    """

    degree: int
    units: int = 32
    d_model: int = 128
    layers: int = 1
    conv: Literal["closed", "basic"] = "closed"
    reset_form: Literal["transformation", "selection"] = "transformation"
    start: Literal["one_hot", "levels"] = "one_hot"
    curriculum: LengthCurriculum = BY_LENGTH
    patience: int = 500
    rounds: int = 6
    max_states: int = 30_000


@dataclass
class Trained:
    """A network and what came of it.

    result: of `certify`, or None where there is no machine to compare with. units: those that pruning left. log: what
    was done, in order, with seconds.
    """

    model: MinMaxRNC_LM
    learnt: bool = False
    result: Proof | Counterexample | Unknown | None = None
    restarts: int = 0
    steps: int = 0
    length: int = 0
    seconds: float = 0.0
    log: list[dict[str, object]] = field(default_factory=list)

    @property
    def units(self) -> int:
        """How many units the network has."""
        shape = self.model.config.backbone
        return shape.d_state // shape.degree


def make_network(vocabulary: int, plan: NetworkPlan) -> MinMaxRNC_LM:
    """A new network, its weights drawn by torch's generator."""
    shape: dict[str, Any] = {"reset_form": plan.reset_form, "d_model": plan.d_model, "n_layers": plan.layers}
    if plan.conv == "basic":
        shape["conv_type"] = "basic"
    config = MinMaxRNCLMConfig.state_tracking(plan.degree, plan.units, **shape)
    model = MinMaxRNC_LM(vocabulary, config)
    if plan.start == "one_hot":
        one_hot_start(model)
    return model


@torch.no_grad()
def one_hot_start(model: torch.nn.Module) -> None:
    """Let every unit that sends levels to places start with 1 at its first place and 0 elsewhere."""
    for neuron in (each for each in model.modules() if isinstance(each, MinMaxNeuron)):
        for cell, x0 in zip(neuron.cells, neuron.x0.split_with_sizes(neuron.sizes), strict=True):
            if isinstance(cell, TransformationCell):
                x0.zero_().view(-1, cell.degree)[:, 0] = 1


def train_network(
    task: Task, plan: NetworkPlan, *, seconds: float, seed: int = 0, watch: Tell = lambda text: None
) -> Trained:
    """Train by length; start again with another seed whenever it is stuck, until it is learnt or time is up.

    The result is the network that was learnt, or else the one that came to the longest words.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # so small a network is slower on several
    try:
        with torch.random.fork_rng(devices=[]):
            return _train(task, plan, seconds, seed, watch)
    finally:
        torch.set_num_threads(threads)


def _train(task: Task, plan: NetworkPlan, seconds: float, seed: int, watch: Tell) -> Trained:
    began = time.monotonic()
    best: Trained | None = None
    restart = 0
    while True:
        left = seconds - (time.monotonic() - began)
        if best is not None and (best.learnt or left <= 0):
            best.seconds, best.restarts = time.monotonic() - began, restart - 1
            return best
        torch.manual_seed(1000 * seed + restart)
        model = make_network(task.vocabulary, plan)
        curriculum = replace(plan.curriculum, seconds=max(left, 1e-3), patience=plan.patience)
        learning = learn_by_length(model, task, curriculum, seed=1000 * seed + restart)
        watch(f"network {restart + 1}: {learning.stopped} at length {learning.length} after {learning.steps} steps")
        entry = {"training": learning.stopped, "length": learning.length, "steps": learning.steps}
        log = [*(best.log if best else []), {**entry, "seconds": round(learning.seconds, 1)}]
        steps = learning.steps + (best.steps if best else 0)
        if best is None or learning.learnt or learning.length > best.length:
            best = Trained(model.eval(), learning.learnt, length=learning.length)
        best.log, best.steps, restart = log, steps, restart + 1


def prune(model: MinMaxRNC_LM, tokens: torch.Tensor, targets: torch.Tensor) -> MinMaxRNC_LM:
    """The network without the units that these words do not need."""
    rows = max(1, TOKENS // tokens.shape[1])
    return prune_states(model, tokens[:rows], targets[:rows])


def train_and_prove(
    task: Task, plan: NetworkPlan, *, seconds: float, seed: int = 0, watch: Tell = lambda text: None
) -> Trained:
    """Train, prune and certify against the task's machine; train on counterexamples and do it again.

    Every round ends in a proof, in a counterexample, which the next round's words begin with, or in an unknown, for
    which a new network is trained if there is time.
    """
    began, machine = time.monotonic(), Machine.from_task(task)
    words = ChosenWords(task, machine, seed)
    tried, log, restarts, steps = 0, [], 0, 0  # type: ignore[var-annotated]
    before: Trained | None = None
    while True:
        left = seconds - (time.monotonic() - began)
        trained = train_network(
            task if not words.words else words, plan, seconds=left, seed=100 * seed + tried, watch=watch
        )
        log, restarts, steps = log + trained.log, restarts + trained.restarts, steps + trained.steps
        for number in range(plan.rounds if trained.learnt else 0):
            start = time.monotonic()
            for smaller in _smaller(trained.model, words, plan):
                result = certify(smaller, machine, no_answer=task.vocabulary, max_states=plan.max_states)
                if isinstance(result, Unknown):
                    settle_choices(smaller, words.sample("train", 2, TOKENS // 20, 20).tokens)
                    result = certify(smaller, machine, no_answer=task.vocabulary, max_states=plan.max_states)
                if not isinstance(result, Unknown):
                    break
            word = getattr(result, "word", None)
            said = {"certify": type(result).__name__, "word": None if word is None else list(word)}
            said |= {"reason": result.reason} if isinstance(result, Unknown) else {}
            log.append({**said, "states": result.states, "seconds": round(time.monotonic() - start, 1)})
            watch(f"round {number + 1}: {type(result).__name__}" + (f" {list(word)}" if word else ""))
            trained.result = result
            if isinstance(result, Proof):
                trained.model = smaller
                break
            if time.monotonic() - began > seconds or word is None:
                break
            words.add(word)
            if plan.layers > 1:  # units that were taken out would hide the mistakes of those that are left
                trained.model = smaller
            steps += _correct(trained.model, words, plan, seed + number, seconds - (time.monotonic() - began))
        if before is not None and not trained.learnt:
            trained = before  # rather one that was learnt and not proved
        tried, before = tried + 1, trained
        if isinstance(trained.result, Proof) or time.monotonic() - began > seconds:
            trained.log, trained.restarts, trained.steps = log, restarts + tried - 1, steps
            trained.seconds = time.monotonic() - began
            return trained


def _smaller(model: MinMaxRNC_LM, words: ChosenWords, plan: NetworkPlan) -> Iterator[MinMaxRNC_LM]:
    """Smaller networks to certify: with the units that the answers need, and with those that follow the machine.

    Units that the answers need may be in many more states together than the machine has. Units whose state is a
    function of the machine's state are not; their readout is trained again. For groups they come first. In a cascade
    of several layers no unit is such a function by itself.
    """
    if plan.start == "one_hot":
        yield prune(model, *words.sample("train", 0, TOKENS // 20, 20))
    if plan.layers > 1:
        return
    tokens, _ = words.sample("train", 1, 64, 64)
    machine = words.machine()
    before = states_before(machine, tokens.numpy())
    states = torch.from_numpy(machine.transitions[before, tokens.numpy()])
    followers = keep_followers(model, tokens, states)
    if followers is not None:
        freeze_moves(followers)
        learn_by_length(followers, words, LengthCurriculum(shortest=32, longest=32, right=60, steps=1000))
        yield followers.eval()
    if plan.start == "levels":
        yield prune(model, *words.sample("train", 0, TOKENS // 20, 20))


def _correct(model: MinMaxRNC_LM, words: ChosenWords, plan: NetworkPlan, seed: int, seconds: float) -> int:
    """Train on at low rate, on words near the counterexamples beside others; the steps taken."""
    length = min(plan.curriculum.longest, 2 * max(map(len, words.words)) + 8)
    gentle = replace(
        plan.curriculum,
        shortest=length,
        longest=length,
        learning_rate=1e-3,
        right=20,
        steps=400,
        seconds=max(seconds, 1),
    )
    steps = learn_by_length(model, words, gentle, seed=seed + 7919).steps
    model.eval()
    return steps


class ChosenWords(Task):
    """A task's own words, and beside them words that a mistake shows on.

    A quarter of the rows begin with a word to a state drawn evenly, however rare the state is in random words. Another
    quarter begin with a counterexample of which none, one or two symbols are changed.
    """

    def __init__(self, task: Task, machine: Machine, seed: int = 0) -> None:
        self.task, self._machine, self.seed = task, machine, seed
        self.name, self.vocabulary, self.splits, self.pad = task.name, task.vocabulary, task.splits, task.pad
        self.asked = machine.outputs != task.vocabulary
        self.live = leads_to(machine.transitions, self.asked)
        self.access = _access_words(machine, self.live)
        self.words: list[tuple[int, ...]] = []

    def machine(self) -> Machine:
        """What gives the right answers."""
        return self._machine

    def add(self, word: Sequence[int]) -> None:
        """Keep a counterexample."""
        self.words.append(tuple(word))

    def sample(self, split: str, seed: int, rows: int | None = None, length: int | None = None) -> Batch:
        """As a task does; the words depend on those that were added."""
        tokens, targets = self.task.sample(split, seed, rows, length)
        random = numpy.random.default_rng((self.seed, seed))
        count, steps = tokens.shape
        forced = numpy.full((count // 2, steps), -1)
        for row, place in enumerate(random.permutation(len(forced))):
            near = self.words and row % 2
            word = list(self.words[random.integers(len(self.words))] if near else self.access[row % len(self.access)])
            for _ in range(random.integers(3) if near else 0):
                word[random.integers(len(word))] = int(random.integers(self._machine.n_symbols))
            forced[place, : len(word)] = word[:steps]
        chosen, states = random_words(self._machine, self.live, random, forced)
        answers = numpy.where(self.asked[states, chosen], self._machine.outputs[states, chosen], IGNORE)
        tokens[: len(chosen)], targets[: len(chosen)] = torch.from_numpy(chosen), torch.from_numpy(answers)
        return Batch(tokens, targets)

    def blocks(self, split: str, lengths: Array, random: Random) -> Iterator[tuple[Array, Array]]:
        """The task's own."""
        return self.task.blocks(split, lengths, random)

    def oracle(self, tokens: Sequence[int]) -> list[int]:
        """The task's own."""
        return self.task.oracle(tokens)


def _access_words(machine: Machine, live: Array) -> list[tuple[int, ...]]:
    """A shortest word to each state from which an answer is still asked for."""
    words: dict[int, tuple[int, ...]] = {machine.start: ()}
    queue = [machine.start]
    for state in queue:
        for symbol in numpy.flatnonzero(live[state]).tolist():
            after = int(machine.transitions[state, symbol])
            if after not in words and live[after].any():
                words[after] = (*words[state], symbol)
                queue.append(after)
    return list(words.values())
