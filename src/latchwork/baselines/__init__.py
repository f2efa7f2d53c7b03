"""The models that the paper compares with, behind the interface of ours, and the registry of all models."""

from latchwork.baselines.baseline import Baseline, detach
from latchwork.baselines.registry import PRESETS, ModelConfig, make_baseline, make_model

__all__ = ["PRESETS", "Baseline", "ModelConfig", "detach", "make_baseline", "make_model"]
