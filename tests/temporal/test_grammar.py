"""Text to formulas and back."""

import pytest
from cases_temporal import formulas
from hypothesis import given, settings
from hypothesis import strategies as st

from latchwork.temporal import (
    Formula,
    ParseError,
    always,
    constant,
    eventually,
    historically,
    iff,
    next_,
    once,
    parameter,
    parse,
    prev,
    rise,
    signals,
    since,
    unequal,
    until,
    xor,
)

a, b, c = signals("a b c")


@settings(max_examples=200)
@given(formulas())
def test_a_formula_prints_as_text_that_parses_to_itself(formula):
    assert parse(str(formula)) == formula
    assert hash(parse(str(formula))) == hash(formula)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a and b or c", (a & b) | c),
        ("a or b and c", a | (b & c)),
        ("a implies b implies c", (a >> b) >> c),
        ("a and b until c", a & until(b, c)),
        ("a since b until c", since(a, until(b, c))),
        ("a since b unless[0:2] c", since(a, always(b, 0, 2) | until(b, c, 0, 2))),
        ("a unless b", always(a) | until(a, b)),
        ("always a until b", until(always(a), b)),
        ("not a >= 2 and b", ~(a >= 2) & b),
        ("a iff b xor c", xor(iff(a, b), c)),
        ("!a & b | c -> a <-> b", iff((~a & b | c) >> a, b)),
        ("G[0,3] F[1:2] H O a", always(eventually(historically(once(a)), 1, 2), 0, 3)),
        ("a U[0:1] b S c", since(until(a, b, 0, 1), c)),
        ("X Y sX sY a", next_(prev(next_(prev(a, strong=True), strong=True)))),
        ("rise(a) >= 1", rise(a) >= 1),
        ("a - b - 1 <= -2", a - b - 1 <= -2),
        ("-a * 2 / b > 1e-3", -a * 2 / b > 1e-3),
        ("a !== b", unequal(a, b)),
        ("once[2:] a", once(a, 2)),
        ("abs(a) <= $limit", abs(a) <= parameter("limit")),
        ("true or false", constant(float("inf")) | constant(float("-inf"))),
        ("always_a and Gb", signals("always_a")[0] & signals("Gb")[0]),
        ("near = a < 2; always (near implies b)", always((a < 2) >> b)),
        ("const int n = 3\ninput float a\nout = once[0:n] a // the end", once(a, 0, 3)),
    ],
)
def test_operators_bind_as_in_rtamt(text, wanted):
    assert parse(text) == wanted


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("", 1, "expected a formula"),
        ("a &&b", 4, "expected a formula; got '&'"),
        ("(a and b", 9, r"expected '\)'; the text ends here"),
        ("a)", 2, "expected an operator such as 'and' or the end; got '\\)'"),
        (") a", 1, "expected a formula or the end; got"),
        ("a b", 3, "expected an operator or the end"),
        ("sin(a) <= 1", 4, "expected an operator or the end"),
        ("a and and b", 7, "expected a name or a number; got the operator 'and'"),
        ("since > 0", 1, "got the operator 'since'"),
        ("a <= $U", 7, "got the operator 'U'"),
        ("once[F:2] a", 6, "got the operator 'F'"),
        ("a <=", 5, "expected a name or a number; the text ends"),
        ("a @ b", 3, "'@' is no part of a formula"),
        ("once[3:1] a", 1, "0 <= begin <= end; got"),
        ("once[1.5:2] a", 6, "whole number of steps"),
        ("once[n:2] a", 6, "whole number or the name of one; got 'n'"),
        ("once[0:3 a", 10, "expected ']'; got 'a'"),
        ("once[0:99999999999999999999] a", 8, "at most 18 digits"),
        ("1e999 <= a", 1, "too large"),
        ("(" * 10_000 + "a" + ")" * 10_000, 201, "at most 200 parentheses"),
        ("not " * 10_000 + "a", None, "at most 500 operators inside each other"),
        ("a and " * 10_000 + "a", 1, "at most 500 operators"),
    ],
)
def test_a_text_that_is_no_formula_is_shown_where_and_why(text, column, message):
    with pytest.raises(ParseError, match=message) as caught:
        parse(text)
    assert column in (None, caught.value.column)
    assert max(map(len, str(caught.value).splitlines())) <= 200


@settings(max_examples=200)
@given(st.text(alphabet="ab ()[]:0123456789.<>=!&|-+*/$;_GFUSOHXYW\n", max_size=40))
def test_any_text_is_a_formula_or_a_parse_error(text):
    try:
        formula = parse(text)
    except ParseError:
        return
    assert parse(str(formula)) == formula


def test_a_line_and_a_column_are_those_of_the_text():
    with pytest.raises(ParseError, match="line 3, column 5") as caught:
        parse("p = a\n\n  b ?? c")
    assert (caught.value.line, caught.value.column) == (3, 5)


@pytest.mark.parametrize(
    ("text", "horizon", "memory"),
    [
        ("a", 0, 0),
        ("eventually[2:5] a", 5, 0),
        ("always[0:3] (a until[1:4] next b)", 8, 0),
        ("once[2:5] a", 0, 5),
        ("a since[1:4] prev b", 0, 5),
        ("once[3:4] eventually[0:5] a", 2, 4),
        ("a since b", 0, float("inf")),
        ("always a", float("inf"), 0),
        ("rise(next a)", 1, 0),
        ("a since[0:0] once[0:9] b", 0, 9),
    ],
)
def test_horizon_and_memory_say_how_far_a_formula_looks(text, horizon, memory):
    formula = parse(text)
    assert (formula.horizon, formula.memory) == (horizon, memory)


def test_python_cannot_drop_a_part_of_a_formula():
    with pytest.raises(TypeError, match="no truth value"):
        assert (a > 1) and (b > 1)  # noqa: PT018
    with pytest.raises(TypeError, match="a formula or a number"):
        a & "b"
    with pytest.raises(ValueError, match="takes no bounds"):
        Formula("not", (a,), 0, 3)
    with pytest.raises(TypeError, match="whole number of steps"):
        once(a, 0, 2.5)


def test_a_subformula_that_is_shared_many_times_over_is_walked_once():
    formula = a
    for _ in range(100):
        formula = formula & formula
    assert len(formula.nodes()) == 101
    assert formula.horizon == 0
