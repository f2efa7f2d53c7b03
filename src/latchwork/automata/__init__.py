"""Finite automata: machines, what they need of a network, and their decomposition into cascades."""

from latchwork.automata.machine import Machine

__all__ = ["Machine"]
