"""State merging: from labelled traces to a machine, by the package AALpy.

AALpy's general state merging builds the tree of all prefixes and merges its nodes. Here every node counts the labels
that were seen at it. Two nodes may be merged if the labels that then stand side by side contradict each other no more
often than `noise` allows. Without noise, and taking the first merge that is possible, that is RPNI; taking the merge
with the most agreeing labels, it is EDSM.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any

import numpy

from latchwork.automata import Machine
from latchwork.extras import need
from latchwork.learning.traces import Score, Traces, score
from latchwork.tasks.task import IGNORE

NOISE = (0.02, 0.05, 0.1)  # shares of wrong labels that are tried
FOLDS = 3
SHORT, LONG = {"rpni": 4_000, "edsm": 2_000}, 30_000  # steps of the traces used, at first and at last
SURE = 3.0  # standard deviations: this many contradictions beyond `noise` still count as chance


class GaveUp(RuntimeError):
    """Merging took longer, or found more states, than allowed."""


@dataclass(frozen=True)
class Merging:
    """How states are merged.

    order: "rpni" takes the first merge that is possible, "edsm" the one with the most agreeing labels.
    outputs: "moore" if a label belongs to the state after a step, "mealy" if to the step itself.
    share: less than 1 uses the shortest traces alone. steps: of the traces used, at most. noise: the share of labels
    that may be wrong. states: give up beyond this many.
    """

    order: str = "rpni"
    outputs: str = "moore"
    share: float = 1.0
    noise: float = 0.0
    steps: int = 4_000
    states: int = 200

    def __str__(self) -> str:
        """As a log says it."""
        share = "all traces" if self.share == 1 else f"the shortest {self.share:.0%} of the traces"
        noise = f", noise {self.noise:.0%}" if self.noise else ""
        return f"{self.order.upper()} ({self.outputs}) on {share} up to {self.steps:,} steps{noise}"


def merge(traces: Traces, symbols: int, undecided: int, how: Merging, deadline: float = float("inf")) -> Machine:
    """The machine that merging finds. Raises GaveUp after the deadline, of `time.monotonic`, or beyond how.states.

    Least commitment: where the traces do not say what follows or which label is right, the machine's output is
    `undecided`, and after a step that no trace takes it is so for ever.
    """
    need("automata", "aalpy")
    from aalpy.learning_algs.general_passive.DataHandler import DataHandler
    from aalpy.learning_algs.general_passive.GeneralizedStateMerging import Instrumentation, run_GSM
    from aalpy.learning_algs.general_passive.ScoreFunctionsGSM import ScoreCalculation, SpecialScores

    moore = how.outputs == "moore"
    used = traces.some(how.share, how.steps)

    def check_time() -> None:  # EDSM scores every pair of states before it merges one
        if time.monotonic() > deadline:
            raise GaveUp("no time left")

    class Labels(DataHandler):  # type: ignore[misc]
        """Counts of (symbol, label) at each node; the symbol is None for labels of the node itself."""

        def abstract(self, in_value: Any, out_value: Any) -> tuple[Any, Any]:
            return in_value, "."

        def init_data(self) -> Counter[tuple[Any, int]]:
            return Counter()

        def aggregate_data(self, source: Any, symbol: Any, label: Any, target: Any) -> None:
            if label != IGNORE and source is not None:
                (target if moore else source).data[None if moore else symbol, label] += 1

        def merge(self, one: Counter[Any], other: Counter[Any]) -> Counter[Any]:
            one.update(other)
            return one

        def copy(self, data: Counter[Any]) -> Counter[Any]:
            return Counter(data)

    class Evidence(ScoreCalculation):  # type: ignore[misc]
        """Whether a merge contradicts few enough labels, and how many agree."""

        def local_compatibility(self, one: Any, other: Any) -> bool:
            return how.noise > 0 or all(
                one.data[symbol, label] or not any(one.data[symbol, each] for each in range(undecided))
                for symbol, label in other.data
            )

        def score_function(self, part: dict[Any, Any]) -> Any:
            check_time()
            if how.noise == 0 and how.order == "rpni":
                return SpecialScores.ImmediateAccept
            after, before, largest = _totals(set(part.values())), Counter[str](), Counter[int]()
            for node, merged in part.items():
                seen, wrong = _total(node.data)
                before["seen"] += seen
                before["wrong"] += wrong
                largest[id(merged)] = max(largest[id(merged)], seen)
            beside, wrong = after[0] - sum(largest.values()), after[1] - before["wrong"]
            if wrong > how.noise * beside + SURE * sqrt(how.noise * beside):
                return SpecialScores.ImmediateReject
            return SpecialScores.ImmediateAccept if how.order == "rpni" else beside - 2 * wrong

    class Clock(Instrumentation):  # type: ignore[misc]
        """Gives up in time."""

        states = 0

        def log_promote(self, node: Any) -> None:
            self.states += 1
            if self.states > how.states:
                raise GaveUp(f"more than {how.states} states")
            check_time()

        def log_merge(self, part: Any) -> None:
            check_time()

    data = [
        ([IGNORE] if moore else []) + list(zip(word.tolist(), labels.tolist(), strict=True))
        for word, labels in zip(used.tokens, used.targets, strict=True)
    ]
    root = run_GSM(
        data,
        output_behavior=how.outputs,
        transition_behavior="deterministic",
        score_calc=Evidence(),
        data_handler=Labels(),
        node_order="short-lex",
        consider_only_min_blue=how.order == "rpni",
        data_format="io_traces",
        instrumentation=Clock(),
        convert=False,
    )
    return _machine(root, symbols, undecided, moore)


def _totals(nodes: set[Any]) -> tuple[int, int]:
    pairs = [_total(node.data) for node in nodes]
    return sum(seen for seen, _ in pairs), sum(wrong for _, wrong in pairs)


def _total(data: Counter[tuple[Any, int]]) -> tuple[int, int]:
    """How many labels a node has, and how many of them are not the most frequent one of their symbol."""
    most: dict[Any, int] = {}
    for (symbol, _), count in data.items():
        most[symbol] = max(most.get(symbol, 0), count)
    seen = sum(data.values())
    return seen, seen - sum(most.values())


def _machine(root: Any, symbols: int, undecided: int, moore: bool) -> Machine:
    """The merged nodes as a machine with one state more, where nothing is known."""
    number, nodes = {root: 0}, [root]
    for node in nodes:
        for _, _, child in node.transition_iterator():
            if child not in number:
                number[child] = len(nodes)
                nodes.append(child)
    unknown = len(nodes)
    transitions = numpy.full((unknown + 1, symbols), unknown)
    outputs = numpy.full((unknown + 1, symbols), undecided)
    for node in nodes:
        for symbol, _, child in node.transition_iterator():
            transitions[number[node], symbol] = number[child]
            data, key = (child.data, None) if moore else (node.data, symbol)
            counts = [data.get((key, label), 0) for label in range(undecided)]
            if max(counts) > 0:
                outputs[number[node], symbol] = int(numpy.argmax(counts))
    return Machine(transitions, outputs).minimise()


@dataclass(frozen=True)
class Trial:
    """One way to learn and what came of it. machine: None if it gave up. score: on traces that it had not seen."""

    how: str
    machine: Machine | None
    score: Score | None
    seconds: float
    note: str = ""


def settings(per_step: bool) -> list[Merging]:
    """The ways of merging that are compared, the cheapest first."""
    kinds = ("mealy", "moore") if per_step else ("moore",)
    clean = [Merging(outputs=kind) for kind in kinds]
    noisy = [Merging(outputs=kinds[-1], noise=noise) for noise in NOISE]
    short = [Merging(outputs=kind, share=1 / 3) for kind in kinds]
    careful = [Merging(order="edsm", outputs=kinds[-1], share=share) for share in (1.0, 1 / 3)]
    return [*clean, *noisy, *short, *careful]


def merge_by_cross_validation(
    traces: Traces,
    symbols: int,
    undecided: int,
    deadline: float,
    random: numpy.random.Generator,
    watch: Callable[[str], None] = lambda text: None,
) -> list[Trial]:
    """Each setting's machine from all traces, with its score on the folds that it did not see; the best first.

    The best is the one with the most labels right; among those within one standard error of it, the one with the
    fewest states. Settings are tried on a few traces first; then on more of them, those that did best first. A
    setting without mistakes ends the search.
    """
    folds = numpy.array_split(random.permutation(len(traces)), min(FOLDS, len(traces)))
    trials: list[Trial] = []
    queue = [replace(how, steps=SHORT[how.order]) for how in settings(traces.per_step)]
    begin, again, ranked = time.monotonic(), traces.steps > SHORT["rpni"], False
    until = begin + (deadline - begin) * (0.4 if again else 1.0)
    while queue:
        by_name = dict[str, Merging]()
        for place, how in enumerate(queue):
            start = time.monotonic()
            if start > until:
                break
            watch(f"merging states: {how}")
            # Of the time that is left an equal share each; half of it where the most promising comes first.
            share = start + (until - start) / (min(len(queue) - place, 2) if ranked else len(queue) - place)
            trial = _cross_validate(traces, symbols, undecided, how, folds, share)
            trials.append(replace(trial, seconds=time.monotonic() - start))
            by_name[trial.how] = how
            if trial.score is not None and 0 < trial.score.right == trial.score.asked:
                return rank(trials)
        best = [by_name[each.how] for each in rank(trials) if each.how in by_name]
        queue = [replace(how, steps=LONG) for how in best if how.order == "rpni"] if again else []
        again, until, ranked = False, deadline, True
    return rank(trials)


def _cross_validate(
    traces: Traces, symbols: int, undecided: int, how: Merging, folds: list[numpy.ndarray], deadline: float
) -> Trial:
    total = [0, 0, 0, 0]
    try:
        if len(folds) > 1:
            for fold in folds:
                inside = numpy.setdiff1d(numpy.arange(len(traces)), fold).tolist()
                machine = merge(traces.take(inside), symbols, undecided, how, deadline)
                found, _ = score(machine, traces.take(fold.tolist()))
                for k, each in enumerate((found.right, found.asked, found.traces_right, found.traces)):
                    total[k] += each
        machine = merge(traces, symbols, undecided, how, deadline)
    except GaveUp as error:
        return Trial(str(how), None, None, 0.0, str(error))
    return Trial(str(how), machine, Score(*total), 0.0)


def rank(trials: list[Trial]) -> list[Trial]:
    """The best first: few states among those that are as good as the best within chance; those that gave up last."""
    best = as_good_as_the_best(trials)

    def key(trial: Trial) -> tuple[int, int, float]:
        if trial.machine is None or trial.score is None:
            return 2, 0, 0.0
        return int(trial not in best), trial.machine.n_states if trial in best else 0, -trial.score.accuracy

    return sorted(trials, key=key)


def as_good_as_the_best(trials: list[Trial]) -> list[Trial]:
    """Those whose accuracy is that of the best, or less by at most one standard error."""
    scores = [each.score for each in trials if each.machine is not None and each.score is not None]
    if not scores:
        return []
    best = max(scores, key=lambda each: each.accuracy)
    chance = sqrt(best.accuracy * (1 - best.accuracy) / max(best.traces, 1))
    return [each for each in trials if each.score in scores and each.score.accuracy >= best.accuracy - chance]
