"""Finite automata: machines, what they need of a network, and their decomposition into cascades."""

from latchwork.automata.decompose import degree, is_group_free
from latchwork.automata.errors import DecompositionTooLarge
from latchwork.automata.holonomy import Action, Holonomy, Level, holonomy
from latchwork.automata.machine import Machine

__all__ = ["Action", "DecompositionTooLarge", "Holonomy", "Level", "Machine", "degree", "holonomy", "is_group_free"]
