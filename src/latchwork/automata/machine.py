"""Mealy machines as arrays: from a regular expression, a formula, an automaton, a table or a task; run and compared."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy

from latchwork.automata import expression
from latchwork.files import read_json, write_json

if TYPE_CHECKING:
    from automata.fa.dfa import DFA

    from latchwork.tasks import Task
    from latchwork.temporal import Formula

Array = numpy.ndarray
Node = TypeVar("Node", bound=Hashable)
ROWS = 1024  # rows run together: what a cache holds
MOST_BYTES = 1 << 30  # of a file
FEW = 16  # rows that are run faster one after the other


@dataclass(frozen=True, eq=False, repr=False)
class Machine:
    """A Mealy machine: at each step it reads a symbol, gives the output of its state at it, and goes to the next state.

    transitions: (states, symbols), the state that follows. outputs: (states, symbols), integers of at least 0.
    start: the state before the first step. The arrays cannot be written to.

    Two machines are equal if they differ in the names of their states alone; states that no word reaches do not count.
    Whether they compute the same function is another question: see `equivalent`.
    >>> parity = Machine.from_table([[0, 1], [1, 0]], [[0, 1], [1, 0]])
    >>> parity.run([[1, 1, 0, 1]])
    array([[1, 0, 0, 1]])
    >>> parity == Machine.from_table([[0, 1], [1, 0]], [[1, 0], [0, 1]], start=1)
    True
    """

    transitions: Array
    outputs: Array
    start: int = 0

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

    @classmethod
    def from_table(
        cls, transitions: Array | Sequence[Sequence[int]], outputs: Array | Sequence[Sequence[int]], start: int = 0
    ) -> Machine:
        """The machine of two tables of integers, (states, symbols) each, which are copied."""
        return cls(numpy.array(transitions), numpy.array(outputs), start)

    @classmethod
    def from_regex(cls, pattern: str, alphabet: str | None = None) -> Machine:
        r"""The smallest machine that says at each step whether what it has read so far matches: 1 if so, else 0.

        pattern: as Python's `re.fullmatch` reads it: letters, (), |, *, +, ?, {m,n}, [a-c], [^ab], . for any letter,
        \d, \w, \D, \W, and \ before a sign that is meant as a letter. alphabet: the letters, without commas and white
        space; token i is alphabet[i]. By default they are those that the pattern names, sorted.
        >>> Machine.from_regex("a(b|c)*", "abc").run([[0, 1, 2, 0]])
        array([[1, 1, 1, 0]])
        >>> Machine.from_regex("[a-c]{2}").n_symbols
        3
        """
        letters = expression.letters(pattern) if alphabet is None else alphabet
        transitions, accepts = expression.automaton(pattern, letters)
        return cls(transitions, accepts[transitions]).minimise()

    @classmethod
    def from_dfa(cls, dfa: DFA, alphabet: Sequence[str] | None = None) -> Machine:
        """The machine that says at each step whether automata-lib's deterministic automaton accepts: 1 if so, else 0.

        alphabet: its input symbols; token i is alphabet[i]. By default they are sorted. Where the automaton has no
        transition, it never accepts again.
        """
        letters = sorted(dfa.input_symbols) if alphabet is None else list(alphabet)
        if len(letters) != len(dfa.input_symbols) or set(letters) != set(dfa.input_symbols):
            raise ValueError(f"alphabet must hold each of {sorted(dfa.input_symbols)} once; got {letters}")

        def successors(state: Any) -> list[Any]:
            return [_DEAD if state is _DEAD else dfa.transitions[state].get(letter, _DEAD) for letter in letters]

        states, rows = _explore(dfa.initial_state, successors)
        accepts = numpy.array([int(state is not _DEAD and state in dfa.final_states) for state in states])
        transitions = numpy.array(rows)
        return cls(transitions, accepts[transitions])

    @classmethod
    def from_formula(cls, formula: Formula | str, symbols: Sequence[str] | None = None) -> Machine:
        """The smallest machine that says at each step whether a formula of temporal logic holds: 1 if so, else 0.

        formula: over truth values, in text as `latchwork.temporal.parse` reads it; past and future operators may be
        mixed, with bounds or without. Without future operators it is asked at each step, at the step itself; with them,
        at the first step, of the word so far.
        symbols: token i is symbols[i], and the atom of that name is true there alone. Without symbols the atoms are
        booleans, sorted by name, and token i has those true whose bits are 1 in i, the first atom's bit being the
        lowest.
        >>> Machine.from_formula("b since a", symbols="abc").run([[1, 0, 1, 2, 1]])
        array([[0, 1, 1, 0, 0]])
        >>> Machine.from_formula("always (req implies eventually ack)").run([[1, 0, 2, 3]])  # ack 1, req 2
        array([[1, 1, 0, 1]])
        """
        from latchwork.temporal import parse
        from latchwork.temporal.machine import tables

        return cls(*tables(parse(formula) if isinstance(formula, str) else formula, symbols)).minimise()

    @classmethod
    def from_task(cls, task: Task) -> Machine:
        """The machine whose output at each step is the task's answer.

        Its symbols are the tokens that may come in the task's words. Where the task asks for no answer the output is
        `task.vocabulary`, which is no token; so is every output from a token on that the task never draws there.
        >>> from latchwork.tasks import make_task
        >>> Machine.from_task(make_task("parity")).run([[1, 1, 1]])
        array([[1, 0, 1]])
        >>> Machine.from_task(make_task("fflm(0.8)")).run([[2, 1, 4, 0, 3, 1, 0, 3]])  # ends with two mistakes
        array([[5, 5, 5, 5, 1, 5, 5, 5]])
        """
        from latchwork.automata.task_machine import tables

        return cls(*tables(task))

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

    def run(self, tokens: Array | Sequence[Sequence[int]]) -> Array:
        """The output at each step: (B, T) for tokens (B, T), all rows from the start.

        Many rows take each step together; a few are run one after the other.
        """
        words = _integers("tokens", tokens, "(B, T)") if numpy.size(tokens) else numpy.zeros(numpy.shape(tokens), int)
        if words.ndim != 2:
            raise ValueError(f"tokens must be (B, T); got {words.shape}")
        if words.size and (words.min() < 0 or words.max() >= self.n_symbols):
            raise ValueError(f"tokens must be in 0..{self.n_symbols - 1}; got {words.min()}..{words.max()}")
        table = (self.transitions * self.n_symbols).ravel()  # states are kept times the symbols: one addition a step
        found = numpy.empty(words.shape, self.outputs.dtype)
        if len(words) < FEW:
            following = table.tolist()
            for row, word in enumerate(words):
                now, places = self.start * self.n_symbols, []
                for token in word.tolist():
                    place = now + token
                    places.append(place)
                    now = following[place]
                found[row] = self.outputs.take(numpy.array(places, int))
            return found
        for first in range(0, len(words), ROWS):
            rows = slice(first, first + ROWS)
            index = numpy.array(words[rows].T, numpy.int64, order="C")  # a copy, always: it is written to
            state = numpy.full(index.shape[1], self.start * self.n_symbols)
            for here in index:
                here += state
                table.take(here, out=state, mode="clip")
            found[rows] = self.outputs.take(index).T
        return found

    def reachable(self) -> Machine:
        """The same machine without the states that no word reaches, numbered in the order in which they are met."""
        states, rows = _explore(self.start, lambda state: self.transitions[state].tolist())
        return Machine(numpy.array(rows), self.outputs[states])

    def minimise(self) -> Machine:
        """The smallest machine that gives the same outputs to every word."""
        machine = self.reachable()
        block = _columns(machine.outputs)
        while True:  # two states stay together while their outputs agree and their successors are together
            finer = _columns(numpy.column_stack([block, block[machine.transitions]]))
            if finer.max() == block.max():
                break
            block = finer
        _, states = numpy.unique(block, return_index=True)
        return Machine(
            block[machine.transitions[states]], machine.outputs[states], int(block[machine.start])
        ).reachable()

    def product(self, other: Machine) -> Machine:
        """Both at once: where this gives a and the other gives b, the product gives a * other.n_outputs + b."""
        self._check_symbols(other)
        width = other.n_states

        def successors(state: int) -> list[int]:
            row: list[int] = (self.transitions[state // width] * width + other.transitions[state % width]).tolist()
            return row

        pairs, rows = _explore(self.start * width + other.start, successors)
        mine, others = numpy.divmod(numpy.array(pairs), width)
        return Machine(numpy.array(rows), self.outputs[mine] * other.n_outputs + other.outputs[others])

    def equivalent(self, other: Machine) -> tuple[int, ...] | None:
        """None if both give the same outputs to every word; else a shortest word at whose last step they differ.

        Pairs of states are met breadth first. A pair that follows from those met before, because "not told apart so
        far" is transitive, is left out: a word that tells it apart tells apart one of those, which stands no deeper,
        so the word found is still the shortest, and no more pairs are met than both machines have states.
        >>> Machine.from_regex("a*", "ab").equivalent(Machine.from_regex("a?a?", "ab"))
        (0, 0, 0)
        """
        self._check_symbols(other)
        transitions = numpy.vstack([self.transitions, other.transitions + self.n_states]).tolist()
        outputs = numpy.vstack([self.outputs, other.outputs]).tolist()
        leader = list(range(len(transitions)))

        def find(state: int) -> int:
            while leader[state] != state:
                leader[state] = leader[leader[state]]
                state = leader[state]
            return state

        start = (self.start, other.start + self.n_states)
        leader[start[0]] = start[1]
        met: dict[tuple[int, int], tuple[tuple[int, int], int] | None] = {start: None}
        queue = deque([start])
        while queue:
            pair = queue.popleft()
            a, b = pair
            if outputs[a] != outputs[b]:
                symbol = next(k for k, (one, two) in enumerate(zip(outputs[a], outputs[b], strict=True)) if one != two)
                word, step = [symbol], met[pair]
                while step is not None:
                    word.append(step[1])
                    step = met[step[0]]
                return tuple(reversed(word))
            for symbol, following in enumerate(zip(transitions[a], transitions[b], strict=True)):
                one, two = find(following[0]), find(following[1])
                if one != two:
                    leader[one] = two
                    met[following] = (pair, symbol)
                    queue.append(following)
        return None

    def to_dot(self, symbols: Sequence[str] | None = None) -> str:
        """The text of a Graphviz graph: states, and arrows with symbol/output. symbols: their names, else numbers."""
        from latchwork.automata.drawing import dot_text

        return dot_text(self, symbols)

    def draw(self, path: str | Path, symbols: Sequence[str] | None = None) -> None:
        """Write an SVG picture: by the program `dot` where there is one, else with the states on a circle."""
        from latchwork.automata.drawing import draw

        draw(self, Path(path), symbols)

    def save(self, path: str | Path) -> None:
        """Write the tables as JSON."""
        values = {"transitions": self.transitions.tolist(), "outputs": self.outputs.tolist(), "start": self.start}
        write_json(Path(path), values)

    @classmethod
    def load(cls, path: str | Path) -> Machine:
        """The machine that `save` wrote."""
        values = read_json(Path(path), MOST_BYTES)
        if values is None:
            raise FileNotFoundError(f"no file {path}")
        if set(values) != {"transitions", "outputs", "start"}:
            raise ValueError(f"{path} must hold transitions, outputs and start; got {', '.join(sorted(values)):.200}")
        try:
            return cls.from_table(**values)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None

    def __eq__(self, other: object) -> bool:
        """The same but for the names of states, and for states that no word reaches."""
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

    def _form(self) -> tuple[tuple[int, int], bytes, bytes]:
        """What is the same for machines that differ in the names of states alone, and for no others."""
        machine = self.reachable()
        return (machine.n_states, machine.n_symbols), machine.transitions.tobytes(), machine.outputs.tobytes()

    def _check_symbols(self, other: Machine) -> None:
        if not isinstance(other, Machine):
            raise TypeError(f"other must be a Machine; got {type(other).__name__}")
        if other.n_symbols != self.n_symbols:
            raise ValueError(f"other must read {self.n_symbols} symbols, as this machine does; got {other.n_symbols}")


_DEAD = object()  # the state from which an automaton with a missing transition accepts nothing


def _explore(start: Node, successors: Callable[[Node], Sequence[Node]]) -> tuple[list[Node], list[list[int]]]:
    """The nodes met from `start`, breadth first, and the numbers of the successors of each."""
    number = {start: 0}
    nodes, rows = [start], []
    for node in nodes:
        row = []
        for following in successors(node):
            if following not in number:
                number[following] = len(nodes)
                nodes.append(following)
            row.append(number[following])
        rows.append(row)
    return nodes, rows


def _columns(table: Array) -> Array:
    """(rows,): equal numbers 0, 1, ... for equal rows."""
    number = numpy.zeros(len(table), int)
    for column in table.T:
        _, place = numpy.unique(column, return_inverse=True)
        _, number = numpy.unique(number * (place.max() + 1) + place, return_inverse=True)
    return number


def _integers(name: str, values: Array | Sequence[Sequence[int]], shape: str) -> Array:
    array = numpy.asarray(values)
    if array.ndim != 2:
        raise ValueError(f"{name} must be {shape}; got {array.shape}")
    if array.dtype.kind not in "iu":
        raise ValueError(f"{name} must be integers; got {array.dtype}")
    return array.astype(numpy.int64)


def _start(start: int, states: int) -> int:
    if isinstance(start, bool) or not isinstance(start, (int, numpy.integer)) or not 0 <= start < states:
        raise ValueError(f"start must be a state, 0..{states - 1}; got {start!r}")
    return int(start)
