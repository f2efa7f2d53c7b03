"""Training: trainers, protocols, the loop, and the folder that a run leaves."""

from latchwork.training.folder import RunFolder
from latchwork.training.loop import Place, Progress, train
from latchwork.training.protocol import SCALES, EvaluationProtocol, Scale, TrainingProtocol
from latchwork.training.trainer import TRAINERS, Trainer

__all__ = [
    "SCALES",
    "TRAINERS",
    "EvaluationProtocol",
    "Place",
    "Progress",
    "RunFolder",
    "Scale",
    "Trainer",
    "TrainingProtocol",
    "train",
]
