"""The models that the paper compares with, behind the interface of ours."""

from latchwork.baselines.baseline import Baseline, detach
from latchwork.baselines.make import BASELINES, make_baseline

__all__ = ["BASELINES", "Baseline", "detach", "make_baseline"]
