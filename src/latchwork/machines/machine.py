"""Mealy machines as arrays, with names: from a regular expression, a formula, an automaton, a table or a task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy

from latchwork.files import read_json, write_json
from latchwork.machines import expression
from latchwork.machines.compare import blocks, difference, explore
from latchwork.machines.walk import run

if TYPE_CHECKING:
    from automata.fa.dfa import DFA

    from latchwork.tasks import Task
    from latchwork.temporal import Formula

Array = numpy.ndarray
Names = Sequence[str] | None
MOST_BYTES = 1 << 30  # of a file
MOST_DRAWN = 50  # states, in a notebook
ACCEPTANCE = ("reject", "accept")  # the outputs of a machine that says whether a word is in a language


@dataclass(frozen=True, eq=False, repr=False)
class Machine:
    """A Mealy machine: at each step it reads a symbol, gives the output of its state at it, and goes to the next state.

    transitions: (states, symbols), the state that follows. outputs: (states, symbols), integers of at least 0.
    start: the state before the first step. The arrays cannot be written to.
    symbol_names: the name of each symbol, or None: symbols are numbers. output_names: likewise, of each output. A
    machine with the outputs `ACCEPTANCE` says whether a word is in a language.

    Two machines are equal if they differ in names alone, of states, symbols and outputs; states that no word reaches do
    not count. Whether they compute the same function is another question: see `equivalent`.
    >>> parity = Machine.from_table([[0, 1], [1, 0]], [[0, 1], [1, 0]])
    >>> parity.run([[1, 1, 0, 1]])
    array([[1, 0, 0, 1]])
    >>> parity == Machine.from_table([[0, 1], [1, 0]], [[1, 0], [0, 1]], start=1)
    True
    """

    transitions: Array
    outputs: Array
    start: int = 0
    symbol_names: tuple[str, ...] | None = None
    output_names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        """Check what the fields hold; make the arrays int64 and read-only."""
        for name in ("transitions", "outputs"):
            table = _integers(name, getattr(self, name), "(states, symbols)")
            table.flags.writeable = False
            object.__setattr__(self, name, table)
        if self.transitions.size == 0:
            raise ValueError(f"transitions must have at least one state and one symbol; got {self.transitions.shape}")
        if self.transitions.min() < 0 or self.transitions.max() >= len(self.transitions):
            raise ValueError(
                f"transitions must hold states 0..{len(self.transitions) - 1}; "
                f"got {self.transitions.min()}..{self.transitions.max()}"
            )
        if self.outputs.shape != self.transitions.shape:
            raise ValueError(
                f"outputs must have the shape of transitions, {self.transitions.shape}; got {self.outputs.shape}"
            )
        if self.outputs.min() < 0:
            raise ValueError(f"outputs must be at least 0; got {self.outputs.min()}")
        object.__setattr__(self, "start", _start(self.start, len(self.transitions)))
        object.__setattr__(self, "symbol_names", _names("symbol_names", self.symbol_names))
        object.__setattr__(self, "output_names", _names("output_names", self.output_names))
        if self.symbol_names is not None and len(self.symbol_names) != self.n_symbols:
            raise ValueError(f"symbol_names must be {self.n_symbols} names; got {len(self.symbol_names)}")
        if self.output_names is not None and len(self.output_names) < self.n_outputs:
            raise ValueError(f"output_names must be at least {self.n_outputs} names; got {len(self.output_names)}")

    @classmethod
    def from_table(
        cls,
        transitions: Array | Sequence[Sequence[int]],
        outputs: Array | Sequence[Sequence[int]],
        start: int = 0,
        *,
        symbol_names: Names = None,
        output_names: Names = None,
    ) -> Machine:
        """The machine of two tables of integers, (states, symbols) each, which are copied."""
        names: Any = symbol_names, output_names
        return cls(numpy.array(transitions), numpy.array(outputs), start, *names)

    @classmethod
    def from_regex(cls, pattern: str, alphabet: str | None = None) -> Machine:
        r"""The smallest machine that says at each step whether what it has read so far matches: 1 if so, else 0.

        pattern: as Python's `re.fullmatch` reads it: letters, (), |, *, +, ?, {m,n}, [a-c], [^ab], . for any letter,
        \d, \w, \D, \W, and \ before a sign that is meant as a letter. alphabet: the letters, without commas and white
        space; token i is alphabet[i]. By default they are those that the pattern names, sorted.
        >>> Machine.from_regex("a(b|c)*", "abc").run([[0, 1, 2, 0]])
        array([[1, 1, 1, 0]])
        >>> Machine.from_regex("[a-c]{2}").symbol_names
        ('a', 'b', 'c')
        """
        letters = expression.letters(pattern) if alphabet is None else alphabet
        transitions, accepts = expression.automaton(pattern, letters)
        return cls(transitions, accepts[transitions], 0, tuple(letters), ACCEPTANCE).minimise()

    @classmethod
    def from_dfa(cls, dfa: DFA, alphabet: Sequence[str] | None = None) -> Machine:
        """The machine that says at each step whether automata-lib's deterministic automaton accepts: 1 if so, else 0.

        alphabet: its input symbols; token i is alphabet[i]. By default they are sorted. Where the automaton has no
        transition, it never accepts again.
        """
        letters = sorted(dfa.input_symbols) if alphabet is None else list(alphabet)
        if len(letters) != len(dfa.input_symbols) or set(letters) != set(dfa.input_symbols):
            raise ValueError(f"alphabet must hold each of {sorted(dfa.input_symbols)} once; got {letters}")
        dead = object()  # the state after a missing transition

        def successors(state: Any) -> list[Any]:
            return [dead if state is dead else dfa.transitions[state].get(letter, dead) for letter in letters]

        states, rows = explore(dfa.initial_state, successors)
        accepts = numpy.array([int(state is not dead and state in dfa.final_states) for state in states])
        transitions = numpy.array(rows)
        return cls(transitions, accepts[transitions], 0, tuple(map(str, letters)), ACCEPTANCE)

    @classmethod
    def from_att(cls, path: str | Path) -> Machine:
        """The machine of an acceptor in AT&T's text format, without the states that no word reaches.

        A line is an edge, `source target symbol symbol`, or a state that accepts. State 0 is the start, and a missing
        edge rejects for good. Symbols are sorted. See machines/att.py.
        """
        from latchwork.machines.att import read_att

        transitions, accepts, names = read_att(Path(path))
        return cls(transitions, accepts[transitions], 0, tuple(names), ACCEPTANCE).reachable()

    @classmethod
    def from_formula(cls, formula: Formula | str, symbols: Sequence[str] | None = None) -> Machine:
        """The smallest machine that says at each step whether a formula of temporal logic holds: 1 if so, else 0.

        formula: over truth values, in text as `latchwork.temporal.parse` reads it; past and future operators may be
        mixed, with bounds or without. Without future operators it is asked at each step, at the step itself; with them,
        at the first step, of the word so far.
        symbols: token i is symbols[i], and the atom of that name is true there alone. Without symbols the atoms are
        booleans, sorted by name, and token i has those true whose bits are 1 in i, the first atom's bit being the
        lowest; the token is named by the atoms that are true.
        >>> Machine.from_formula("b since a", symbols="abc").run([[1, 0, 1, 2, 1]])
        array([[0, 1, 1, 0, 0]])
        >>> machine = Machine.from_formula("always (req implies eventually ack)")
        >>> machine.symbol_names
        ('none', 'ack', 'req', 'ack & req')
        >>> machine.run([[1, 0, 2, 3]])
        array([[1, 1, 0, 1]])
        """
        from latchwork.temporal import parse
        from latchwork.temporal.machine import symbol_names, tables

        formula = parse(formula) if isinstance(formula, str) else formula
        return cls(*tables(formula, symbols), 0, symbol_names(formula, symbols), ACCEPTANCE).minimise()

    @classmethod
    def from_task(cls, task: Task) -> Machine:
        """The machine of a task: `task.machine()`."""
        return task.machine()

    @property
    def n_states(self) -> int:
        """How many states there are, reached or not."""
        return int(self.transitions.shape[0])

    @property
    def n_symbols(self) -> int:
        """How many symbols it reads."""
        return int(self.transitions.shape[1])

    @property
    def n_outputs(self) -> int:
        """One more than the largest output."""
        return int(self.outputs.max()) + 1

    @property
    def is_acceptor(self) -> bool:
        """Whether its outputs say that a word is in a language: they are named `ACCEPTANCE`."""
        return self.output_names == ACCEPTANCE

    def symbol(self, number: int) -> str:
        """The name of a symbol; its number, if it has none."""
        return str(number) if self.symbol_names is None else self.symbol_names[number]

    def output(self, number: int) -> str:
        """The name of an output; its number, if it has none."""
        return self.output_names[number] if self.output_names and number < len(self.output_names) else str(number)

    def word(self, tokens: Sequence[int]) -> str:
        """A word in the names of its symbols: letters one after the other, longer names with spaces between.

        >>> Machine.from_regex("(ab)*").word([0, 1, 0])
        'aba'
        """
        names = [self.symbol(token) for token in tokens]
        letters = self.symbol_names is not None and all(len(name) == 1 for name in self.symbol_names)
        return ("" if letters else " ").join(names)

    def run(self, tokens: Array | Sequence[Sequence[int]]) -> Array:
        """The output at each step: (B, T) for tokens (B, T), all rows from the start."""
        words = _integers("tokens", tokens, "(B, T)") if numpy.size(tokens) else numpy.zeros(numpy.shape(tokens), int)
        if words.ndim != 2:
            raise ValueError(f"tokens must be (B, T); got {words.shape}")
        if words.size and (words.min() < 0 or words.max() >= self.n_symbols):
            raise ValueError(f"tokens must be in 0..{self.n_symbols - 1}; got {words.min()}..{words.max()}")
        return run(self.transitions, self.outputs, numpy.full(len(words), self.start), words)[0]

    def reachable(self) -> Machine:
        """The same machine without the states that no word reaches, numbered in the order in which they are met."""
        states, rows = explore(self.start, lambda state: self.transitions[state].tolist())
        return self._with(numpy.array(rows), self.outputs[states])

    def minimise(self) -> Machine:
        """The smallest machine that gives the same outputs to every word."""
        machine = self.reachable()
        block = blocks(machine.transitions, machine.outputs)
        _, states = numpy.unique(block, return_index=True)
        return self._with(
            block[machine.transitions[states]], machine.outputs[states], int(block[machine.start])
        ).reachable()

    def moore(self) -> Machine:
        """A machine that does the same, in which all steps that lead to one state give the same output.

        States are split where they must be. The start has no step that leads to it; it is the split state that makes
        the machine smallest.
        >>> machine = Machine.from_regex("(a|b)*ab")  # the state after ab goes on as that after bb
        >>> machine.n_states, machine.moore().n_states
        (2, 3)
        """

        def successors(node: tuple[int, int]) -> list[tuple[int, int]]:
            rows = self.transitions[node[0]].tolist(), self.outputs[node[0]].tolist()
            return list(zip(*rows, strict=True))

        given = numpy.unique(self.outputs[self.transitions == self.start]).tolist() or [0]
        states, rows = min(
            (explore((self.start, output), successors) for output in given), key=lambda each: len(each[0])
        )
        return self._with(numpy.array(rows), self.outputs[[state for state, _ in states]])

    def product(self, other: Machine) -> Machine:
        """Both at once: where this gives a and the other gives b, the product gives a * other.n_outputs + b."""
        self._check_symbols(other)
        width = other.n_states

        def successors(state: int) -> list[int]:
            row: list[int] = (self.transitions[state // width] * width + other.transitions[state % width]).tolist()
            return row

        pairs, rows = explore(self.start * width + other.start, successors)
        mine, others = numpy.divmod(numpy.array(pairs), width)
        outputs = self.outputs[mine] * other.n_outputs + other.outputs[others]
        names = None
        if self.output_names is not None or other.output_names is not None:
            ranges = range(self.n_outputs), range(other.n_outputs)
            names = tuple(f"{self.output(a)}, {other.output(b)}" for a in ranges[0] for b in ranges[1])
        return Machine(numpy.array(rows), outputs, 0, self.symbol_names or other.symbol_names, names)

    def equivalent(self, other: Machine) -> tuple[int, ...] | None:
        """None if both give the same outputs to every word; else a shortest word at whose last step they differ.

        >>> Machine.from_regex("a*", "ab").equivalent(Machine.from_regex("a?a?", "ab"))
        (0, 0, 0)
        """
        self._check_symbols(other)
        transitions = numpy.vstack([self.transitions, other.transitions + self.n_states])
        outputs = numpy.vstack([self.outputs, other.outputs])
        return difference(transitions, outputs, self.start, other.start + self.n_states)

    def to_dot(self, symbols: Sequence[str] | None = None) -> str:
        """The text of a Graphviz graph: states, and arrows with symbol/output. symbols: names other than its own."""
        from latchwork.machines.drawing import dot_text

        return dot_text(self._named(symbols))

    def draw(self, path: str | Path, symbols: Sequence[str] | None = None) -> None:
        """Write an SVG picture: by the program `dot` where there is one, else with the states on a circle."""
        from latchwork.machines.drawing import draw

        draw(self._named(symbols), Path(path))

    def save(self, path: str | Path) -> None:
        """Write tables and names as JSON."""
        names = {name: list(each) for name in NAMES if (each := getattr(self, name)) is not None}
        tables = {"transitions": self.transitions.tolist(), "outputs": self.outputs.tolist(), "start": self.start}
        write_json(Path(path), {**tables, **names})

    @classmethod
    def load(cls, path: str | Path) -> Machine:
        """The machine that `save` wrote."""
        values = read_json(Path(path), MOST_BYTES)
        if values is None:
            raise FileNotFoundError(f"no file {path}")
        if not {"transitions", "outputs", "start"} <= set(values) <= {"transitions", "outputs", "start", *NAMES}:
            raise ValueError(
                f"{path} must hold transitions, outputs and start, and may hold {' and '.join(NAMES)}; "
                f"got {', '.join(sorted(values)):.200}"
            )
        try:
            return cls.from_table(**values)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None

    def __eq__(self, other: object) -> bool:
        """The same but for names, and for states that no word reaches."""
        if not isinstance(other, Machine):
            return NotImplemented
        return self._form() == other._form()

    def __hash__(self) -> int:
        """Equal machines have equal hashes."""
        return hash(self._form())

    def __repr__(self) -> str:
        """The sizes; the tables are in `transitions` and `outputs`."""
        return (
            f"Machine(states={self.n_states}, symbols={self.n_symbols}, outputs={self.n_outputs}, start={self.start})"
        )

    def _repr_svg_(self) -> str | None:
        """The picture, in a notebook; None where there are too many states for one."""
        from latchwork.machines.drawing import svg_text

        return svg_text(self) if self.n_states <= MOST_DRAWN else None

    def _form(self) -> tuple[tuple[int, int], bytes, bytes]:
        """What is the same for machines that differ in names alone, and for no others."""
        machine = self.reachable()
        return (machine.n_states, machine.n_symbols), machine.transitions.tobytes(), machine.outputs.tobytes()

    def _with(self, transitions: Array, outputs: Array, start: int = 0) -> Machine:
        """Other tables under the same names."""
        return Machine(transitions, outputs, start, self.symbol_names, self.output_names)

    def _named(self, symbols: Sequence[str] | None) -> Machine:
        return self if symbols is None else replace(self, symbol_names=tuple(symbols))

    def _check_symbols(self, other: Machine) -> None:
        if not isinstance(other, Machine):
            raise TypeError(f"other must be a Machine; got {type(other).__name__}")
        if other.n_symbols != self.n_symbols:
            raise ValueError(f"other must read {self.n_symbols} symbols, as this machine does; got {other.n_symbols}")


NAMES = ("symbol_names", "output_names")


def _integers(name: str, values: Array | Sequence[Sequence[int]], shape: str) -> Array:
    array = numpy.asarray(values)
    if array.ndim != 2:
        raise ValueError(f"{name} must be {shape}; got {array.shape}")
    if array.dtype.kind not in "iu":
        raise ValueError(f"{name} must be integers; got {array.dtype}")
    return array.astype(numpy.int64)


def _names(name: str, values: object) -> tuple[str, ...] | None:
    if values is None:
        return None
    names = tuple(values) if isinstance(values, (list, tuple, str)) else ()
    if not names or not all(isinstance(each, str) and each for each in names) or len(set(names)) < len(names):
        raise ValueError(f"{name} must be different names, none of them empty; got {values!r:.200}")
    return names


def _start(start: int, states: int) -> int:
    if isinstance(start, bool) or not isinstance(start, (int, numpy.integer)) or not 0 <= start < states:
        raise ValueError(f"start must be a state, 0..{states - 1}; got {start!r}")
    return int(start)
