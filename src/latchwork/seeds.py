"""Every source of randomness in a run comes from its seed, each by a name of its own."""

from __future__ import annotations

import random
from zlib import crc32

import numpy
import torch


def generator(seed: int, purpose: str, number: int = 0) -> numpy.random.Generator:
    """A generator for one purpose: independent of all others, and the same in every run of this seed."""
    sequence = numpy.random.SeedSequence(seed, spawn_key=(crc32(purpose.encode()), number))
    return numpy.random.Generator(numpy.random.PCG64(sequence))


def seed_everything(seed: int) -> None:
    """Set the global generators of torch, numpy and Python: weights and dropout draw from torch's."""
    torch.manual_seed(seed)
    numpy.random.seed(seed % 2**32)
    random.seed(seed)
