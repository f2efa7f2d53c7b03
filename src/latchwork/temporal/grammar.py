"""`parse`: text in RTAMT's notation to a formula. The grammar is read by lark."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from latchwork.extras import need
from latchwork.temporal import builders as build
from latchwork.temporal.formula import Formula, constant

DEEPEST = 200  # parentheses inside each other
GRAMMAR = r"""
start: (item ";"?)*
item: NAME "=" expression -> named
    | expression -> unnamed
    | "const" type NAME "=" expression -> const
    | ("input" | "output")? type NAME -> variable
type: "float" | "int" | "long" | "real" | "bool"

?expression: xor
?xor: iff | xor "xor" iff -> xor
?iff: implication | iff ("iff" | _DOUBLE_ARROW) implication -> iff
?implication: disjunction | implication ("implies" | "->") disjunction -> implies
?disjunction: conjunction | disjunction ("or" | "|") conjunction -> or_
?conjunction: since | conjunction ("and" | "&") since -> and_
?since: unless | since ("since" | "S") [interval] unless -> since
?unless: until | unless ("unless" | "W") [interval] until -> unless
?until: prefix | until ("until" | "U") [interval] prefix -> until
?prefix: comparison
       | ("not" | "!") prefix -> not_
       | ("always" | "G") [interval] prefix -> always
       | ("eventually" | "F") [interval] prefix -> eventually
       | ("historically" | "H") [interval] prefix -> historically
       | ("once" | "O") [interval] prefix -> once
       | ("prev" | "Y") prefix -> prev
       | ("next" | "X") prefix -> next
       | ("s_prev" | "sY") prefix -> s_prev
       | ("s_next" | "sX") prefix -> s_next
?comparison: sum | comparison COMPARISON sum -> compare
?sum: product | sum "+" product -> add | sum "-" product -> subtract
?product: factor | product "*" factor -> multiply | product "/" factor -> divide
?factor: atom | "-" factor -> minus
?atom: "(" expression ")"
     | NUMBER -> number
     | ("true" | "TRUE") -> true
     | ("false" | "FALSE") -> false
     | NAME -> name
     | "$" NAME -> parameter
     | "rise" "(" expression ")" -> rise
     | "fall" "(" expression ")" -> fall
     | "abs" "(" expression ")" -> abs
     | "sqrt" "(" expression ")" -> sqrt
     | "exp" "(" expression ")" -> exp
     | "pow" "(" expression "," expression ")" -> pow
interval: "[" bound (":" | ",") [bound] "]"
bound: NUMBER -> literal_bound | NAME -> named_bound

_DOUBLE_ARROW.2: "<->"
COMPARISON: "<=" | "<" | ">=" | ">" | "==" | "!==" | "!="
NUMBER: /(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?/
NAME: /[A-Za-z_][A-Za-z_0-9.]*/
COMMENT: /\/\*(.|\n)*?\*\// | /\/\/[^\n]*/
%ignore COMMENT
%ignore /[ \t\r\n\f]+/
"""
INFIX = {"and_": "and", "or_": "or", "implies": "implies", "iff": "iff", "xor": "xor"}
INFIX |= {"add": "+", "subtract": "-", "multiply": "*", "divide": "/"}
PLAIN: dict[str, Callable[..., Any]] = {  # rules that need neither the text nor the names met so far
    "minus": build.minus,
    "true": lambda: constant(float("inf")),
    "false": lambda: constant(float("-inf")),
    "parameter": lambda token: build.parameter(str(token)),
    "interval": lambda begin, end: (begin, end),
    "unnamed": lambda value: value,
    "variable": lambda *_: None,
    "type": lambda: None,
}
PUNCTUATION = {"LPAR": "'('", "RPAR": "')'", "LSQB": "'['", "RSQB": "']'", "COLON": "':'", "COMMA": "','"}
PUNCTUATION |= {"EQUAL": "'='", "$END": "the end"}
DECLARATIONS = {"const", "input", "output", "float", "int", "long", "real", "bool"}  # names too, inside a formula


class ParseError(ValueError):
    """A text that is no formula. line, column: where, from 1."""

    def __init__(self, problem: str, text: str, position: int) -> None:
        position = min(max(position, 0), len(text))
        start = text.rfind("\n", 0, position) + 1
        self.line, self.column = text.count("\n", 0, position) + 1, position - start + 1
        line = text[start:].split("\n", 1)[0]
        first = max(0, self.column - 1 - 60)
        shown = line[first : first + 120].replace("\t", " ")
        pointer = " " * (self.column - 1 - first) + "^"
        super().__init__(f"line {self.line}, column {self.column}: {problem}\n  {shown}\n  {pointer}")


def parse(text: str, *, constants: Mapping[str, float] | None = None) -> Formula:
    """The formula that a text says, in RTAMT's notation.

    Predicates: signals by name, numbers, `+ - * /`, abs, sqrt, exp, pow, compared by <= < >= > == !=; `$name` is a
    threshold to be learnt. Connectives: not, and, or, implies, iff, xor. In time: prev, next (true beyond the trace),
    s_prev, s_next (false there), rise(..), fall(..), once, historically, since, eventually, always, until, unless; each
    of the last seven alone or with bounds [a:b] in steps, [a:] without end. RTAMT's short forms too: ! & | -> <-> G F U
    W H O S X Y.
    Names: `name = formula` gives a subformula a name, for use after it; the last formula is the one returned.
    `const float name = 3`, or `constants`, names a number. Comments: // and /* */.

    not and the temporal prefixes bind tighter than until, then unless, since, and, or, implies, iff, xor; all group to
    the left. Text that cannot be read raises a ParseError, a ValueError that shows the place and what was expected.

    >>> parse("always[0:5] speed - limit <= 2.5 and not alarm")
    Formula('always[0:5] speed - limit <= 2.5 and not alarm')
    >>> parse("near = distance < 2; always (near implies eventually[0:3] speed < 1)").horizon
    inf
    """
    if not isinstance(text, str):
        raise TypeError(f"text must be a string; got {type(text).__name__}")
    _check_nesting(text)
    parser = _parser()
    import lark

    try:
        tree = parser.parse(text)
    except lark.exceptions.UnexpectedInput as error:
        raise _unexpected(error, text) from None
    return _Reader(text, constants or {}).read(tree)


@cache
def _parser() -> Any:
    need("temporal", "lark")
    import lark

    return lark.Lark(GRAMMAR, parser="lalr", propagate_positions=True, maybe_placeholders=True)


@cache
def _reserved() -> frozenset[str]:
    """The words of the grammar. Where no operator may stand lark reads one as a NAME: `a or or` had a signal `or`."""
    words = {str(each.pattern.value) for each in _parser().terminals}
    return frozenset(word for word in words - DECLARATIONS if word.isidentifier())


class _Reader:
    """Turns lark's tree into a formula, operands first and without recursion; keeps the names met so far."""

    def __init__(self, text: str, constants: Mapping[str, float]) -> None:
        self.text = text
        self.named = {name: constant(value) for name, value in constants.items()}

    def read(self, tree: Any) -> Formula:
        last: Formula | None = None
        end, complete = 0, False
        for item in tree.children:
            start = item.meta.start_pos
            between = self.text[end:start]
            if end and (complete or not ("\n" in between or ";" in between)):
                raise ParseError("expected an operator or the end", self.text, start)
            end, complete = item.meta.end_pos, item.data == "unnamed"
            value = self._value(item)
            last = value if item.data in ("named", "unnamed") else last
        if last is None:
            raise ParseError("expected a formula, got none", self.text, len(self.text))
        return last

    def _value(self, item: Any) -> Formula:
        values: dict[int, Any] = {}
        for tree in item.iter_subtrees():  # operands come first
            operands = [values.get(id(child), child) for child in tree.children]
            try:
                values[id(tree)] = self._node(str(tree.data), operands)
            except ParseError:
                raise
            except ValueError as error:
                raise ParseError(str(error), self.text, getattr(tree.meta, "start_pos", 0)) from None
        formula: Formula = values[id(item)]
        return formula

    def _node(self, rule: str, operands: list[Any]) -> Any:
        for token in operands:
            if getattr(token, "type", "") == "NAME" and token in _reserved():
                raise self._error(f"expected a name or a number; got the operator {str(token)!r}", token)
        if rule in INFIX:
            return Formula(INFIX[rule], tuple(operands))
        if rule in ("since", "until"):
            left, interval, right = operands
            return Formula(rule, (left, right), *(interval or (0, None)))
        if rule in ("once", "historically", "eventually", "always"):
            return Formula(rule, (operands[1],), *(operands[0] or (0, None)))
        if rule in ("not_", "prev", "next", "s_prev", "s_next", "rise", "fall", "abs", "sqrt", "exp", "pow"):
            return Formula(rule.rstrip("_"), tuple(operands))
        if rule in ("named", "const"):
            name, value = operands[-2:]
            if rule == "const" and value.operator != "constant":
                raise self._error(f"a constant must be a number; {name} is {value}", name)
            self.named[str(name)] = value
            return value
        return PLAIN[rule](*operands) if rule in PLAIN else getattr(self, f"_{rule}")(*operands)

    def _unless(self, left: Formula, interval: tuple[int, int | None] | None, right: Formula) -> Formula:
        begin, end = interval or (0, None)
        return build.always(left, 0, end) | build.until(left, right, begin, end)

    def _compare(self, left: Formula, operator: Any, right: Formula) -> Formula:
        return Formula("!=" if operator == "!==" else str(operator), (left, right))

    def _number(self, token: Any) -> Formula:
        value = float(token)
        if value == float("inf"):
            raise self._error(f"{_short(token)} is too large for a number", token)
        return constant(value)

    def _name(self, token: Any) -> Formula:
        return self.named.get(str(token), Formula("signal", value=str(token)))

    def _literal_bound(self, token: Any) -> int:
        if not token.isdecimal() or len(token) > 18:
            raise self._error(
                f"a bound must be a whole number of steps of at most 18 digits; got {_short(token)}", token
            )
        return int(token)

    def _named_bound(self, token: Any) -> int:
        value = self.named.get(str(token))
        if value is None or value.operator != "constant" or not float(value.value).is_integer():  # type: ignore[arg-type]
            raise self._error(f"a bound must be a whole number or the name of one; got {_short(token)}", token)
        return int(float(value.value))  # type: ignore[arg-type]

    def _error(self, problem: str, token: Any) -> ParseError:
        return ParseError(problem, self.text, token.start_pos)


def _check_nesting(text: str) -> None:
    depth = 0
    for position, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth > DEEPEST:
            raise ParseError(f"at most {DEEPEST} parentheses may be open at once", text, position)


def _unexpected(error: Any, text: str) -> ParseError:
    import lark

    if isinstance(error, lark.exceptions.UnexpectedCharacters):
        place = int(error.pos_in_stream or 0)
        return ParseError(f"{text[place]!r} is no part of a formula", text, place)
    accepted = error.accepts or error.expected
    expected = []
    if "NAME" in accepted and "AND" not in accepted:
        expected.append("a formula" if "NOT" in accepted else "a name or a number")
    if "AND" in accepted:
        expected.append("an operator such as 'and'")
    if "NAME" in accepted:  # what a formula may begin with goes without saying
        accepted = set(accepted) - {"LPAR", "EQUAL"}
    expected += [text for name, text in PUNCTUATION.items() if name in accepted]
    ended = error.token.type == "$END"
    position = len(text) if ended else error.token.start_pos
    got = "the text ends here" if ended else f"got {_short(error.token)}"
    return ParseError(f"expected {' or '.join(expected)}; {got}", text, position)


def _short(token: str) -> str:
    return repr(str(token) if len(token) <= 30 else token[:30] + "...")
