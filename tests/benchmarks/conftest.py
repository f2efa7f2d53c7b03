"""Benchmarks are scripts, not a package: they are found by their folder, after everything else."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
