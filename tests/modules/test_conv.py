"""The two convolutions equal their formulas."""

import itertools

import module_definitions as definition
import pytest
import torch
from module_definitions import LENGTHS, assert_close, randomise_

from latchwork.modules import BasicConv, GatedConv
from reset_cases import RESETS, make_reset

both_kinds = pytest.mark.parametrize("kind", [BasicConv, GatedConv])


@both_kinds
def test_a_convolution_equals_its_formula(kind):
    conv = randomise_(kind(5).double())
    for B, T, carried, reset in itertools.product([0, 1, 3], LENGTHS, [False, True], RESETS):
        u, when = torch.randn(B, T, 5, dtype=torch.float64), make_reset(reset, B, T)
        state = torch.randn(B, 5, dtype=torch.float64) if carried else None
        expected = definition.convolution(conv, u, state, when)
        for one, other in zip(conv(u, state, reset=when), expected, strict=True):
            assert_close(one, other)
