"""The same values as RTAMT's offline monitor in discrete time, to the bit, where it defines them.

Where it does not, by its own semantics: a trace that is not longer than a future bound is lengthened in place, so that
a signal used twice has two lengths; and NaN is lost or kept by the order of Python's min and max. Neither is asked.
"""

import logging

import pytest
import torch
from cases_temporal import ATOMS, FINITE_BOUNDS, NAMES, formulas, random_traces
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from latchwork.temporal import parse

rtamt = pytest.importorskip("rtamt")
FUTURE = ("eventually", "always", "until")


def rtamt_values(text, found):
    logging.disable(logging.WARNING)
    try:
        specification = rtamt.StlDiscreteTimeSpecification()
        for name in NAMES:
            specification.declare_var(name, "float")
        specification.spec = text
        specification.parse()
        steps = found["x"].shape[1]
        data = {"time": list(range(steps)), **{name: found[name][0].tolist() for name in NAMES}}
        return [value for _, value in specification.evaluate(data)]
    finally:
        logging.disable(logging.NOTSET)


def plain(formula):
    """RTAMT's grammar has no `true`, no unary minus but in numbers, and no bound without end."""
    return not any(node.operator == "minus" or node.value in (float("inf"), float("-inf")) for node in formula.nodes())


@settings(max_examples=120)
@given(
    formulas(
        bounds=st.one_of(FINITE_BOUNDS, st.just((0, None))),
        atoms=ATOMS.filter(lambda each: each.operator != "constant"),
    ),
    st.integers(0, 10**6),
)
def test_the_values_are_rtamt_s_to_the_bit(formula, seed):
    assume(plain(formula))
    longest = max((node.end or 0 for node in formula.nodes() if node.operator in FUTURE), default=0)
    found = random_traces(seed, longest + 2 + seed % 30, batch=1)
    text = parenthesised(formula)
    assert parse(text) == formula
    assert torch.equal(formula(found)[0], torch.tensor(rtamt_values(text, found), dtype=torch.float64))


def parenthesised(node):
    """Full parentheses: RTAMT's parser refuses some texts without."""
    if not node.children:
        return str(node)
    parts = [f"({parenthesised(child)})" for child in node.children]
    bounds = "" if node.end is None else f"[{node.begin}:{node.end}]"
    operator = "!==" if node.operator == "!=" else node.operator
    if node.operator in ("rise", "fall", "abs"):
        return node.operator + parts[0]
    return f"{operator}{bounds} {parts[0]}" if len(parts) == 1 else f"{parts[0]} {operator}{bounds} {parts[1]}"


@pytest.mark.parametrize("first", ["and", "or", "implies", "iff", "xor", "until", "since", "until[0:1]", "since[0:1]"])
@pytest.mark.parametrize("second", ["and", "or", "implies", "iff", "xor", "until", "since", "until[0:1]", "since[0:1]"])
def test_text_without_parentheses_means_what_it_means_to_rtamt(first, second):
    found = random_traces(7, 30, batch=1)
    for text in (f"x {first} y {second} z", f"not x {first} once[0:2] y >= 1 {second} always z"):
        assert torch.equal(parse(text)(found)[0], torch.tensor(rtamt_values(text, found), dtype=torch.float64))
