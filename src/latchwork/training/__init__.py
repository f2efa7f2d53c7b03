"""Training: the engine, its plans, the functions that run them, and the folder that a run leaves."""

from latchwork.training.curriculum import Learning, LengthCurriculum
from latchwork.training.engine import DivergedError, Progress, Training
from latchwork.training.plan import Outcome, Plan, Step, deal
from latchwork.training.proof import Attempt, ProofProtocol
from latchwork.training.protocol import SCALES, EvaluationProtocol, History, Scale, TrainingProtocol
from latchwork.training.run_folder import RunFolder
from latchwork.training.train import learn_by_length, run_plan, train, train_until_proved
from latchwork.training.trainer import TRAINERS, Trainer

__all__ = [
    "SCALES",
    "TRAINERS",
    "Attempt",
    "DivergedError",
    "EvaluationProtocol",
    "History",
    "Learning",
    "LengthCurriculum",
    "Outcome",
    "Plan",
    "Progress",
    "ProofProtocol",
    "RunFolder",
    "Scale",
    "Step",
    "Trainer",
    "Training",
    "TrainingProtocol",
    "deal",
    "learn_by_length",
    "run_plan",
    "train",
    "train_until_proved",
]
