"""Thresholds to be learnt: one number for each `$name` of a formula, kept in the formula's own leaf."""

from __future__ import annotations

import torch
from torch import nn

from latchwork.temporal.formula import Formula


def named_parameters(formula: Formula) -> dict[str, nn.Parameter]:
    """The thresholds by name, made at first use. Two leaves of one name in one formula are one threshold."""
    found: dict[str, nn.Parameter] = {}
    for leaf in formula.nodes():
        if leaf.operator == "parameter":
            if "tensor" not in leaf.__dict__:
                leaf.__dict__["tensor"] = nn.Parameter(torch.zeros((), dtype=torch.float64, device="cpu"))
            found[str(leaf.value)] = leaf.__dict__["tensor"]
    return found
