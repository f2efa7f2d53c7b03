"""Finite automata: machines, their decomposition into cascades, and networks that are machines and can be proved so."""

from latchwork.automata.blocks import (
    Component,
    SemiautomatonUnit,
    cascade,
    general_unit,
    identity_reset_unit,
    permutation_unit,
)
from latchwork.automata.certify import Counterexample, Proof, Unknown, certify
from latchwork.automata.compile import compile
from latchwork.automata.decompose import degree, is_group_free
from latchwork.automata.errors import DecompositionTooLarge
from latchwork.automata.holonomy import Action, Holonomy, Level, holonomy
from latchwork.automata.machine import Machine

__all__ = [
    "Action",
    "Component",
    "Counterexample",
    "DecompositionTooLarge",
    "Holonomy",
    "Level",
    "Machine",
    "Proof",
    "SemiautomatonUnit",
    "Unknown",
    "cascade",
    "certify",
    "compile",
    "degree",
    "general_unit",
    "holonomy",
    "identity_reset_unit",
    "is_group_free",
    "permutation_unit",
]
