"""Random formulas and traces: awkward bounds, short traces, ties, infinities."""

import math

import torch
from hypothesis import strategies as st

from latchwork.temporal import Formula, constant, signals

NAMES = ("x", "y", "z")
X, Y, Z = signals("x y z")
BOUNDS = st.one_of(
    st.just((0, None)),
    st.tuples(st.integers(0, 4), st.integers(0, 6)).map(lambda pair: (pair[0], pair[0] + pair[1])),
    st.integers(0, 8).map(lambda a: (a, a)),
    st.integers(0, 3).map(lambda a: (a, None)),
    st.sampled_from([(0, 59), (59, 61), (0, 10**17), (70, 90), (3, 1000)]),
)
FINITE_BOUNDS = BOUNDS.map(lambda pair: (pair[0], pair[0] + 3) if pair[1] is None or pair[1] > 50 else pair)
TERMS = st.one_of(
    st.sampled_from([X, Y, Z]),
    st.sampled_from([-2.0, -0.5, 0.0, 1.0, 3.0]).map(constant),
)
ATOMS = st.one_of(
    TERMS,
    st.tuples(st.sampled_from(["<=", "<", ">=", ">", "==", "!="]), TERMS, TERMS).map(
        lambda parts: Formula(parts[0], parts[1:])
    ),
    st.sampled_from([X - Y <= 2.5, X + 2 * Y > Z, abs(X) < 2, X * X - Z / 4 >= 1]),
)
UNARY = ("not", "prev", "s_prev", "next", "s_next", "rise", "fall")
BINARY = ("and", "or", "implies", "iff", "xor")
WINDOWS = ("once", "historically", "eventually", "always")


def formulas(
    *, unary=UNARY, binary=BINARY, windows=WINDOWS, timed=("since", "until"), bounds=BOUNDS, atoms=ATOMS, leaves=12
):
    def timed_formula(operator, children, bounds):
        return Formula(operator, children, *bounds)

    def extend(children):
        return st.one_of(
            st.builds(Formula, st.sampled_from(unary), st.tuples(children)),
            st.builds(Formula, st.sampled_from(binary), st.tuples(children, children)),
            st.builds(timed_formula, st.sampled_from(windows), st.tuples(children), bounds),
            st.builds(timed_formula, st.sampled_from(timed), st.tuples(children, children), bounds),
        )

    return st.recursive(atoms, extend, max_leaves=leaves).filter(lambda formula: formula.depth <= 9)


def traces(longest=60):
    return st.builds(random_traces, st.integers(0, 2**32 - 1), st.integers(0, longest))


def random_traces(seed, steps, batch=2, ties=None):
    """Tensors (batch, T) by name, float64."""
    generator = torch.Generator().manual_seed(seed)
    ties = seed % 2 == 0 if ties is None else ties
    draw = torch.randn(len(NAMES), batch, steps, generator=generator, dtype=torch.float64)
    if ties:
        draw = draw.mul(1.5).round()
    return dict(zip(NAMES, draw, strict=True))


def with_specials(seed, steps, specials=(math.inf, -math.inf), share=0.1, batch=2):
    """Traces with some entries replaced."""
    found = random_traces(seed, steps, batch)
    generator = torch.Generator().manual_seed(seed + 1)
    for name in found:
        for special in specials:
            where = torch.rand(batch, steps, generator=generator) < share
            found[name] = found[name].masked_fill(where, special)
    return found


def same(a, b):
    """Equal, and NaN where the other is."""
    return torch.equal(a.isnan(), b.isnan()) and torch.equal(a.nan_to_num(7.0), b.nan_to_num(7.0))
