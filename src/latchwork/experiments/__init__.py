"""The paper's experiments as data, and what runs them."""

from latchwork.experiments.experiment import Experiment
from latchwork.experiments.paper import EXPERIMENTS

__all__ = ["EXPERIMENTS", "Experiment"]
