"""What `learn` returns: a machine, its network, and what is known about them."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from latchwork.automata import Counterexample, Machine, Proof, Unknown, certify, compile
from latchwork.evaluation.statistics import wilson
from latchwork.files import read_json, write_json, write_text
from latchwork.learning.hypotheses import states_decided, undecided_words
from latchwork.learning.traces import Name, Names, Score
from latchwork.models import MinMaxRNC_LM

MACHINE, ABOUT, PAGE = "machine.json", "learned.json", "index.html"
MOST_BYTES = 1 << 28  # of learned.json
FIELDS = {
    "symbols",
    "outputs",
    "per_step",
    "traces",
    "held_out",
    "contradicted",
    "wrong_labels",
    "differences",
    "log",
    "source",
}
DRAWN = 40  # states of a machine that a page shows as a picture


@dataclass(frozen=True)
class Learned:
    """A machine that was learnt, the network that it was compiled to, and what is known about them.

    machine: reads symbols and gives outputs by their numbers; names says what they stand for. model: the network.
    certificate: of `certify`, a Proof if network and machine give the same output at every step of every word.
    held_out: how the machine does on traces that were not used; None if there were too few to hold out any.
    contradicted: the places, in what was given to `learn`, of the traces that the machine contradicts. wrong_labels:
    the share of all labels that it contradicts. differences: words on which what merging found and what training found
    differ, the shortest first, with what each of them says. log: what was tried, with seconds. network: the trained
    network, pruned, if the machine was read from one. source: "traces" or "teacher".
    """

    machine: Machine
    model: MinMaxRNC_LM
    names: Names
    certificate: Proof | Counterexample | Unknown
    per_step: bool
    traces: int
    held_out: Score | None
    contradicted: tuple[int, ...] = ()
    wrong_labels: float = 0.0
    differences: tuple[dict[str, Any], ...] = ()
    log: tuple[dict[str, Any], ...] = ()
    source: str = "traces"
    network: MinMaxRNC_LM | None = field(default=None, repr=False)

    def predict(self, sequence: Sequence[Name]) -> Any:
        """The label of a sequence, or a list with one label a step. None where the traces do not say.

        A symbol that was never seen is an error: see `alphabet` of `learn`.
        """
        tokens = self.names.encode(sequence)
        if not len(tokens):
            if self.per_step:
                return []
            raise ValueError("sequence must hold at least one symbol; it is empty")
        labels = [self.names.output(each) for each in self.machine.run(tokens[None])[0].tolist()]
        return labels if self.per_step else labels[-1]

    @property
    def accuracy(self) -> float | None:
        """The share of held-out traces that are answered without a mistake; None if none were held out."""
        return None if self.held_out is None else self.held_out.traces_right / self.held_out.traces

    @property
    def interval(self) -> tuple[float, float] | None:
        """Wilson's 95% interval of `accuracy`."""
        return None if self.held_out is None else wilson(self.held_out.traces_right, self.held_out.traces)

    @property
    def n_states(self) -> int:
        """States of the machine, without the one in which nothing is known."""
        return states_decided(self.machine, self.names.undecided)

    @property
    def undecided(self) -> list[tuple[Name, ...]]:
        """A shortest word for each transition that the traces say nothing about; the shortest first."""
        return [self._word(word) for word in undecided_words(self.machine, self.names.undecided)]

    def __str__(self) -> str:
        """What was learnt, how it does, what is proved, where it is open, and what to do next."""
        return " ".join([self._what(), self._how(), self._proved(), *self._open(), f"Next: {self._next()}"])

    def _what(self) -> str:
        symbols = ", ".join(map(str, self.names.symbols[:8])) + (", ..." if len(self.names.symbols) > 8 else "")
        source = f"{self.traces:,} traces" if self.source == "traces" else f"a teacher, {self.traces:,} questions"
        return (
            f"Learnt from {source}: a machine of {_count(self.n_states, 'state')} that reads "
            f"{_count(len(self.names.symbols), 'symbol')} ({symbols}) and gives "
            f"{'a label at each step' if self.per_step else 'a label to each sequence'}, one of "
            f"{', '.join(map(str, self.names.outputs[:8]))}{', ...' if len(self.names.outputs) > 8 else ''}."
        )

    def _how(self) -> str:
        said = "No trace was held out: there are too few."
        if self.held_out is not None and self.interval is not None:
            low, high = self.interval
            labels = f"It gives {self.held_out.accuracy:.2%} of the held-out labels right. "
            said = (
                f"{labels if self.per_step and self.held_out.right < self.held_out.asked else ''}"
                f"It is {'wholly ' if self.per_step else ''}right on {self.held_out.traces_right:,} of "
                f"{self.held_out.traces:,} "
                f"{'held-out traces' if self.source == 'traces' else 'new random words'} "
                f"(95% interval {low:.1%} to {high:.1%})."
            )
        if self.contradicted:
            said += (
                f" It contradicts {len(self.contradicted):,} of all traces, {self.wrong_labels:.2%} of their labels: "
                "wrong labels, or more than it has learnt."
            )
        return said

    def _proved(self) -> str:
        if isinstance(self.certificate, Proof):
            return (
                f"Proved: the network gives the machine's answer at every step of every sequence of any length "
                f"({self.certificate.precision})."
            )
        if isinstance(self.certificate, Counterexample):
            return f"The network differs from the machine after {_show(self._word(self.certificate.word))}."
        return f"Whether network and machine agree on all sequences is unknown: {self.certificate.reason}."

    def _open(self) -> list[str]:
        said = []
        if words := self.undecided:
            said.append(
                f"The traces say nothing about {_count(len(words), 'transition')}: there it answers None, first after "
                f"{_show(words[0])}."
            )
        if self.differences:
            first = self.differences[0]
            said.append(
                f"State merging and a trained network disagree, first after {_show(first['word'])}: "
                f"{first['merging']} or {first['network']}."
            )
        return said

    def _next(self) -> str:
        if not isinstance(self.certificate, Proof):
            return "run the machine (`predict` does), not the network."
        if self.held_out is not None and self.held_out.traces_right < self.held_out.traces and not self.differences:
            return "look at the contradicted traces; if their labels are right, give more traces or more seconds."
        if self.differences:
            return "find out the label of that sequence and add it to the traces."
        if self.undecided:
            return "add a trace that goes there, or leave it if it cannot happen."
        if self.held_out is None or self.held_out.traces < 30:
            return "give more traces: the interval is wide."
        return "use `predict`, export the network, or certify it against a formula of your own."

    def _word(self, word: Sequence[int]) -> tuple[Name, ...]:
        return tuple(self.names.symbols[each] for each in word)

    def svg(self) -> str | None:
        """A picture of the machine, None if it has too many states to be read."""
        if self.machine.n_states > DRAWN:
            return None
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "machine.svg"
            self.machine.draw(path, [str(each) for each in self.names.symbols])
            text = path.read_text(encoding="utf-8")
        return text[text.index("<svg") :]

    def _repr_html_(self) -> str:
        from latchwork.learning.page import body

        return body(self)

    def save(self, folder: str | Path) -> None:
        """Write the network as `MinMaxRNC_LM.save` does, machine.json, learned.json and a page, index.html."""
        from latchwork.learning.page import page

        folder = Path(folder)
        about = {
            "symbols": [_to_json(each, "symbols") for each in self.names.symbols],
            "outputs": [_to_json(each, "outputs") for each in self.names.outputs],
            "per_step": self.per_step,
            "traces": self.traces,
            "held_out": None if self.held_out is None else vars(self.held_out),
            "contradicted": list(self.contradicted),
            "wrong_labels": self.wrong_labels,
            "differences": [
                {key: _to_json(value, "differences") for key, value in each.items()} for each in self.differences
            ],
            "log": list(self.log),
            "source": self.source,
        }
        self.model.save(folder)
        _named(self.machine, self.names).save(folder / MACHINE)
        write_json(folder / ABOUT, about)
        write_text(folder / PAGE, page(self))

    @classmethod
    def load(cls, folder: str | Path) -> Learned:
        """What `save` wrote. The network is certified again: a file cannot say that it is proved."""
        folder = Path(folder)
        about = read_json(folder / ABOUT, MOST_BYTES)
        if about is None:
            raise FileNotFoundError(f"no file {folder / ABOUT}: {folder} is no folder that `learn` wrote")
        if set(about) != FIELDS:
            raise ValueError(
                f"{folder / ABOUT} must hold {', '.join(sorted(FIELDS))}; got {', '.join(sorted(about)):.300}"
            )
        machine, model = Machine.load(folder / MACHINE), MinMaxRNC_LM.load(folder)
        names = Names(*(_names_from_json(about[name], folder / ABOUT, name) for name in ("symbols", "outputs")))
        if len(names.symbols) != machine.n_symbols or machine.n_outputs > names.undecided + 1:
            raise ValueError(f"{folder / ABOUT} must name the {machine.n_symbols} symbols and the outputs of {MACHINE}")
        try:
            held_out = None if about["held_out"] is None else Score(**about["held_out"])
            differences = tuple(
                {key: _from_json(value) for key, value in each.items()} for each in about["differences"]
            )
            return cls(
                machine,
                model,
                names,
                certify(model, machine),
                bool(about["per_step"]),
                int(about["traces"]),
                held_out,
                tuple(int(each) for each in about["contradicted"]),
                float(about["wrong_labels"]),
                differences,
                tuple(dict(each) for each in about["log"]),
                str(about["source"]),
            )
        except (TypeError, AttributeError) as error:
            raise ValueError(f"{folder / ABOUT} must be as `save` writes it: {error}") from None


def _named(machine: Machine, names: Names) -> Machine:
    """The machine with the names of its symbols and outputs, as text; by `repr` where two would be alike."""

    def texts(values: Sequence[Name]) -> tuple[str, ...]:
        found = tuple(map(str, values))
        return found if all(found) and len(set(found)) == len(found) else tuple(map(repr, values))

    return replace(machine, symbol_names=texts(names.symbols), output_names=texts([*names.outputs, "undecided"]))


def compile_and_certify(machine: Machine) -> tuple[MinMaxRNC_LM, Proof | Counterexample | Unknown]:
    """The network of one unit that is the machine, and what is proved about it.

    A compiled network has bits for states. With three levels, -1, 0 and 1, they are on a grid that `certify` can walk.
    """
    bits = compile(machine, "one_hot")
    grid = replace(bits.config, backbone=replace(bits.config.resolved_backbone, levels=3))
    model = MinMaxRNC_LM(bits.vocab_size, grid)
    model.load_state_dict(bits.state_dict())
    return model.eval(), certify(model, machine)


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _show(word: Sequence[Name]) -> str:
    text = " ".join(map(str, word[:12]))
    return f"'{text}'" + (f" ... ({len(word)} symbols)" if len(word) > 12 else "")


def _to_json(name: Any, what: str) -> Any:
    if name is None or isinstance(name, (str, bool, int, float)):
        return name
    if isinstance(name, tuple):
        return [_to_json(each, what) for each in name]
    raise ValueError(f"{what} must be texts, numbers, truth values or tuples of them to be saved; got {name!r:.80}")


def _from_json(value: Any) -> Any:
    return tuple(_from_json(each) for each in value) if isinstance(value, list) else value


def _names_from_json(values: Any, path: Path, what: str) -> tuple[Name, ...]:
    if not isinstance(values, list) or any(isinstance(each, dict) for each in values):
        raise ValueError(f"{path} must hold a list of names, {what}; got {values!r:.80}")
    names = tuple(_from_json(each) for each in values)
    if len(set(names)) < len(names):
        raise ValueError(f"{path} must hold names that differ, {what}; got {values!r:.80}")
    return names
