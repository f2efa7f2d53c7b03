"""Training: trainers, protocols, the loop, and the folder that a run leaves."""

from latchwork.training.curriculum import Learning, LengthCurriculum, learn_by_length
from latchwork.training.folder import RunFolder
from latchwork.training.loop import Place, Progress, train
from latchwork.training.protocol import SCALES, EvaluationProtocol, Scale, TrainingProtocol
from latchwork.training.trainer import TRAINERS, Trainer

__all__ = [
    "SCALES",
    "TRAINERS",
    "EvaluationProtocol",
    "Learning",
    "LengthCurriculum",
    "Place",
    "Progress",
    "RunFolder",
    "Scale",
    "Trainer",
    "TrainingProtocol",
    "learn_by_length",
    "train",
]
