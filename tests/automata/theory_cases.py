"""Steps of units, for the theorems."""

import torch
from hypothesis import strategies as st

SEEDS = st.integers(0, 10**6)


def steps(seed, T, n, *, ties=True, dtype=torch.float64):
    """r, s and x0 of T steps of one unit of degree n, as minmax_scan takes them: small integers, or continuous."""
    generator = torch.Generator().manual_seed(seed)
    shapes = [(1, T, 1), (1, T, 1), (1, 1)] if n == 1 else [(1, T, 1, n, n), (1, T, 1, n), (1, 1, n)]
    if ties:
        return [torch.randint(-3, 4, shape, generator=generator).to(dtype) for shape in shapes]
    return [torch.randn(shape, generator=generator, dtype=dtype) for shape in shapes]
