"""Where sequences that are packed into one row begin."""

import torch

RESETS = ["never", "random", "everywhere", "first"]


def make_reset(kind, B, T):
    """reset (B, T), or None for "never"."""
    return {
        "never": lambda: None,
        "random": lambda: torch.rand(B, T) < 0.25,
        "everywhere": lambda: torch.ones(B, T, dtype=torch.bool),
        "first": lambda: torch.arange(T).expand(B, T) == 0,
    }[kind]()
