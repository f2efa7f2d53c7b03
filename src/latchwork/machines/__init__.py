"""Finite machines without torch: Mealy machines with names, regular expressions, runs, words and pictures."""

from latchwork.machines.machine import ACCEPTANCE, Machine

__all__ = ["ACCEPTANCE", "Machine"]
