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
from latchwork.automata.compile import compile, sizes
from latchwork.automata.decompose import degree, is_group_free
from latchwork.automata.errors import DecompositionTooLarge
from latchwork.automata.extract import StateExplosion, extract
from latchwork.automata.holonomy import Action, Holonomy, Level, holonomy
from latchwork.automata.lazy import LazyMachine
from latchwork.automata.learn import Hypothesis, learn
from latchwork.automata.network import Size
from latchwork.machines.machine import Machine

__all__ = [
    "Action",
    "Component",
    "Counterexample",
    "DecompositionTooLarge",
    "Holonomy",
    "Hypothesis",
    "LazyMachine",
    "Level",
    "Machine",
    "Proof",
    "SemiautomatonUnit",
    "Size",
    "StateExplosion",
    "Unknown",
    "cascade",
    "certify",
    "compile",
    "degree",
    "extract",
    "general_unit",
    "holonomy",
    "identity_reset_unit",
    "is_group_free",
    "learn",
    "permutation_unit",
    "sizes",
]
