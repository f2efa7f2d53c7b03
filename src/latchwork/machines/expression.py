r"""Regular expressions, and the automaton of one.

An expression means what it means to Python's `re.fullmatch`. It may hold letters, groups () and (?:), |, *, +, ?, {m},
{m,}, {,n}, {m,n}, sets such as [a-c] and [^ab], . for any letter, \d for digits, \w for word characters, \D and \W for
the others, and \ before a sign that is meant as a letter. What else `re` takes is an error here: anchors, look-arounds,
references, lazy and possessive repetition.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Set
from typing import NamedTuple, NoReturn

import numpy

LENGTH = 10_000  # characters of an expression
DEPTH = 100  # groups inside each other
LETTERS = 1_000  # of an expression whose repetitions are written out, and of an alphabet
STATES = 10_000
STEPS = 1_000_000  # of making the states: one for each letter that a state stands at, one for each successor
SIGNS = r"()[]{}|*+?.\^$&"  # what is no letter unless \ stands before it
COUNT = re.compile(r"[*+?]|\{(?=,?[0-9])([0-9]{0,9})(?:(,)([0-9]{0,9}))?\}")
INSTEAD = "use smaller counts, or give the tables of the machine to Machine.from_table"


def letters(pattern: str) -> str:
    r"""The letters that an expression names, sorted: its alphabet, where none is given.

    \d names 0 to 9; \w names these, a to z, A to Z and _.
    >>> letters(r"(x|[a-c])*[^y]\d")
    '0123456789abcxy'
    """
    return "".join(sorted(_Reader(pattern, None).named))


def automaton(pattern: str, alphabet: str) -> tuple[numpy.ndarray, numpy.ndarray]:
    """The successors (states, letters) and whether each state accepts (states,), 0 or 1; it starts in state 0.

    alphabet: the letters; column i is alphabet[i]. The automaton is complete, not minimal.
    >>> [each.tolist() for each in automaton("ab?", "ab")]
    [[[1, 2], [2, 3], [2, 2], [2, 2]], [0, 1, 0, 1]]
    """
    if (
        not 0 < len(alphabet) <= LETTERS
        or len(set(alphabet)) < len(alphabet)
        or any(each.isspace() or each == "," for each in alphabet)
    ):
        what = f"letters, at most {LETTERS:,}, each once, no comma and no white space"
        raise ValueError(f"alphabet must be {what}; got {_shown(alphabet)}")
    reader = _Reader(pattern, alphabet)
    masks = [sum(1 << place for place, found in enumerate(reader.letters) if each in found) for each in alphabet]
    number, states, rows, steps = {1: 0}, [1], [], 0  # a state is the set of places of the letter that came last
    for state in states:
        following = 0
        for place in _bits(state):
            following |= reader.follow[place]
        steps += state.bit_count() + len(alphabet)
        for mask in masks:
            if following & mask not in number:
                number[following & mask] = len(states)
                states.append(following & mask)
        if len(states) > STATES or steps > STEPS:
            raise ValueError(
                f"pattern must give an automaton of at most {STATES:,} states, in {STEPS:,} steps; "
                f"got {_shown(pattern)}: {INSTEAD}"
            )
        rows.append([number[following & mask] for mask in masks])
    return numpy.array(rows), numpy.array([int(state & reader.accepting > 0) for state in states])


class _Part(NamedTuple):
    """A part of an expression. empty: whether it matches the empty word. first, last: where its words begin and end.

    A place is a letter of the expression; a set of places is an integer, with a bit for each.
    """

    empty: bool
    first: int
    last: int


_EMPTY = _Part(True, 0, 0)


class _Reader:
    """Glushkov's automaton of an expression: which letters may stand at each place, and which places may follow it.

    Place 0 comes before the first letter. named: the letters that the expression names. accepting: the places where a
    word may end. Without an alphabet, `letters` is empty wherever that would decide.
    """

    def __init__(self, pattern: str, alphabet: str | None) -> None:
        self.pattern, self.alphabet = pattern, alphabet
        self.named: set[str] = set()
        self.letters: list[Set[str]] = [frozenset()]
        self.follow = [0]
        self._every, self._at = frozenset(alphabet or ""), 0
        if len(pattern) > LENGTH:
            raise ValueError(f"pattern must have at most {LENGTH:,} characters; got {len(pattern):,}")
        part = self._alternatives(0)
        if self._at < len(pattern):
            self._fail(r"there is a ) without a (; for the letter write \)")
        self.follow[0] = part.first
        self.accepting = part.last | part.empty

    def _alternatives(self, depth: int) -> _Part:
        if depth > DEPTH:
            raise ValueError(f"pattern must have at most {DEPTH} groups inside each other; got {_shown(self.pattern)}")
        part = self._sequence(depth)
        while self._take("|"):
            other = self._sequence(depth)
            part = _Part(part.empty or other.empty, part.first | other.first, part.last | other.last)
        return part

    def _sequence(self, depth: int) -> _Part:
        part = _EMPTY
        while self._next() not in ("", "|", ")"):
            begin = len(self.follow)
            piece = self._group(depth) if self._take("(") else self._letter()
            if count := COUNT.match(self.pattern, self._at):
                self._at = count.end()
                if COUNT.match(self.pattern, self._at):
                    self._fail("a repetition is repeated; put the first into a group: (a*)?")
                least, most = _bounds(count)
                if most is not None and least > most:
                    self._fail(f"{count[0]} must go from the least number to the largest")
                piece = self._repeat(piece, begin, least, most)
            part = self._join(part, piece)
        return part

    def _group(self, depth: int) -> _Part:
        if self._take("?") and not self._take(":"):
            self._fail("of the groups that begin with (? only (?:...) is known")
        part = self._alternatives(depth + 1)
        if not self._take(")"):
            self._fail(r"there is a ( without a ); for the letter write \(")
        return part

    def _letter(self) -> _Part:
        """One place, with the letters that may stand there."""
        sign = self._read()
        if sign == ".":
            found: Set[str] = self._every
        elif sign == "[":
            found = self._set()
        elif sign == "\\":
            escaped = self._escape()
            found = self._name(escaped) if isinstance(escaped, str) else escaped
        elif sign in SIGNS:
            reason = {
                "^": "the whole word is matched, without ^",
                "$": "the whole word is matched, without $",
                "{": "{ begins no {m}, {m,}, {,n} or {m,n} of at most nine digits",
                **dict.fromkeys("*+?", f"there is nothing to repeat before {sign}"),
            }.get(sign, f"{sign} is a sign")
            self._fail(f"{reason}; for the letter write \\{sign}")
        else:
            found = self._name(sign)
        self._check_size(1)
        self.letters.append(found)
        self.follow.append(0)
        place = 1 << (len(self.follow) - 1)
        return _Part(False, place, place)

    def _set(self) -> Set[str]:
        outside, found = self._take("^"), set[str]()
        if self._next() == "]":
            self._fail(r"a set must have a letter; for the letter ] write \]")
        while not self._take("]"):
            low = self._member()
            if not isinstance(low, str):
                found |= low
            elif self._take("-"):
                found |= self._range(low)
            else:
                found |= self._name(low)
        return self._every - found if outside else found

    def _member(self) -> Set[str] | str:
        """Of a set: the letter that stands there, or the letters that a sign stands for."""
        sign = self._read()
        if not sign:
            self._fail(r"there is a [ without a ]; for the letter write \[")
        if sign in "[]-&|~":
            self._fail(f"{sign} stands in a set; for the letter write \\{sign}")
        return self._escape() if sign == "\\" else sign

    def _range(self, low: str) -> Set[str]:
        """From `low` to the letter that comes next; the ends need not be in the alphabet."""
        if self._next() == "]":
            self._fail(r"a range has no end; for the letter - write \-")
        high = self._member()
        if not isinstance(high, str) or low > high:
            self._fail("a range must go from a letter up to another")
        if self.alphabet is None:
            end = min(ord(high), ord(low) + LETTERS)  # which is one letter too many
            self.named.update(map(chr, range(ord(low), end + 1)))
        return {each for each in self._every if low <= each <= high}

    def _escape(self) -> Set[str] | str:
        r"""What stands after \: a letter, or the letters of a kind."""
        sign = self._read()
        if sign in ("d", "D", "w", "W"):
            digits = sign in "dD"
            found = {each for each in self._every if (each.isdecimal() if digits else each.isalnum() or each == "_")}
            if sign.islower():
                self.named.update(string.digits if digits else string.digits + string.ascii_letters + "_")
            return found if sign.islower() else self._every - found
        if not sign or sign.isalnum() or sign.isspace():
            self._fail(rf"\{sign} is unknown; there are \d, \D, \w, \W, and \ before a sign")
        return sign

    def _name(self, letter: str) -> Set[str]:
        self.named.add(letter)
        if self.alphabet is not None and letter not in self._every:
            self._fail(f"{letter!r} is not in the alphabet")
        return {letter}

    def _join(self, one: _Part, two: _Part) -> _Part:
        """One, then two."""
        self._link(one.last, two.first)
        first, last = one.first | (one.empty * two.first), two.last | (two.empty * one.last)
        return _Part(one.empty and two.empty, first, last)

    def _link(self, last: int, first: int) -> None:
        for place in _bits(last):
            self.follow[place] |= first

    def _repeat(self, part: _Part, begin: int, least: int, most: int | None) -> _Part:
        """The part, whose places start at `begin`, least to most times; most: None is without end."""
        size, copies = len(self.follow) - begin, max(least, 1) if most is None else most
        if size == 0:
            return part
        self._check_size((copies - 1) * size)
        letters, follow = self.letters[begin:], self.follow[begin:]
        del self.letters[begin:], self.follow[begin:]
        for copy in range(copies):
            self.letters += letters
            self.follow += [each << (copy * size) for each in follow]
        whole = _EMPTY
        for copy in reversed(range(copies)):
            piece = _Part(part.empty, part.first << (copy * size), part.last << (copy * size))
            if most is None and copy == copies - 1:
                self._link(piece.last, piece.first)
            whole = self._join(piece, whole)
            if copy >= least:
                whole = whole._replace(empty=True)
        return whole

    def _check_size(self, more: int) -> None:
        if len(self.follow) - 1 + more > LETTERS:
            raise ValueError(
                f"pattern must have at most {LETTERS:,} letters when its repetitions are written out; "
                f"got {_shown(self.pattern)}: {INSTEAD}"
            )

    def _next(self) -> str:
        return self.pattern[self._at : self._at + 1]

    def _read(self) -> str:
        self._at += 1
        return self.pattern[self._at - 1 : self._at]

    def _take(self, sign: str) -> bool:
        found = self._next() == sign
        self._at += found
        return found

    def _fail(self, reason: str) -> NoReturn:
        over = "" if self.alphabet is None else f" over {_shown(self.alphabet)}"
        where = f"at character {min(self._at, len(self.pattern))}"
        raise ValueError(f"pattern must be a regular expression{over}; got {_shown(self.pattern)}: {where} {reason}")


def _bounds(count: re.Match[str]) -> tuple[int, int | None]:
    """The least and the most repetitions; None is without end."""
    if count[0] in "*+?":
        return int(count[0] == "+"), 1 if count[0] == "?" else None
    low, comma, high = count.groups()
    least = int(low or 0)
    return least, (int(high) if high else None) if comma else least


def _bits(places: int) -> Iterator[int]:
    while places:
        lowest = places & -places
        yield lowest.bit_length() - 1
        places ^= lowest


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:57]}...")
