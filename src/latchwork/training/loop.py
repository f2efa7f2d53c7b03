"""Train a model on a task: epochs over a fixed data set, validation after each, the best weights kept."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from latchwork.evaluation.accuracy import measure
from latchwork.ops.cross_entropy import mean_cross_entropy
from latchwork.seeds import generator
from latchwork.signals import NEVER, Stop
from latchwork.tasks.task import IGNORE, Batch, Task
from latchwork.training.folder import RunFolder, load_optimizer, optimizer_tensors
from latchwork.training.protocol import TrainingProtocol
from latchwork.training.trainer import Trainer

TOGETHER = 16  # sequences of like length run at once; a batch is the sum of such groups, and none is padded far
SAVE_SECONDS = 60.0  # between two checkpoints
LOG_EVERY = 50  # batches


@dataclass
class Place:
    """Where a training stands: all that a checkpoint holds besides tensors."""

    epoch: int = 0  # epochs done
    batch: int = 0  # batches of the next one done
    loss: float = 0.0  # summed over the answers of those batches
    asked: int = 0
    tokens: int = 0  # of sequences, over all epochs, without padding
    seconds: float = 0.0
    epoch_seconds: float = 0.0
    best_epoch: int = -1
    best_accuracy: float = -1.0
    epochs: list[dict[str, float]] = field(default_factory=list)
    stopped: str = ""  # why; empty while it goes on


@dataclass(frozen=True)
class Progress:
    """What is shown while a training runs."""

    epoch: int
    epochs: int
    batch: int
    batches: int
    loss: float
    accuracy: float | None  # of the last validation
    tokens_per_second: float
    text: str = "training"


Watch = Callable[[Progress], None]


def train(
    model: nn.Module,
    task: Task,
    *,
    trainer: Trainer,
    batch_size: int,
    protocol: TrainingProtocol,
    seed: int,
    folder: RunFolder | None = None,
    watch: Watch | None = None,
    seconds_left: float = float("inf"),
    stop: Stop = NEVER,
) -> Place:
    """Train in place and leave the model with its best weights, those of the best validation accuracy.

    With a folder, what was begun there resumes: it ends with the same weights, bit for bit, as if never cut off.
    stop: when it is asked, a checkpoint is written and Stopped raised.
    """
    data = task.sample("train", seed, protocol.sequences)
    validation = task.sample("validation", seed, protocol.validation_sequences)
    ends, validation_ends = _ends(data), _ends(validation)
    optimizer = trainer.make_optimizer(model.parameters())
    best = {name: value.clone() for name, value in model.state_dict().items()}
    place = Place()
    if folder is not None and (found := folder.load()) is not None:
        tensors, values = found
        try:
            place = Place(**values)
            _load(model, tensors, "model.")
            best = {name: tensors[f"best.{name}"] for name in best}
            load_optimizer(optimizer, tensors)
            torch.set_rng_state(tensors["random"])
        except (KeyError, RuntimeError, TypeError, ValueError) as error:
            raise ValueError(f"{folder.checkpoint} is of another model or optimiser: {error}") from error
        if "random.cuda" in tensors:
            torch.cuda.set_rng_state(tensors["random.cuda"])

    def save() -> None:
        if folder is not None:
            tensors = {f"model.{name}": value for name, value in model.state_dict().items()}
            tensors |= {f"best.{name}": value for name, value in best.items()}
            tensors |= optimizer_tensors(optimizer) | {"random": torch.get_rng_state()}
            if next(model.parameters()).is_cuda:
                tensors["random.cuda"] = torch.cuda.get_rng_state()
            folder.save({name: value.clone() for name, value in tensors.items()}, asdict(place))

    clock = saved = time.monotonic()

    def tick() -> None:
        nonlocal clock
        now = time.monotonic()
        place.seconds, place.epoch_seconds = place.seconds + now - clock, place.epoch_seconds + now - clock
        clock = now

    model.train()
    batches = -(-len(data.tokens) // batch_size)
    while not place.stopped:
        order = torch.from_numpy(generator(seed, "order", place.epoch).permutation(len(data.tokens)))
        for number in range(place.batch, batches):
            rate = trainer.rate(place.epoch * batches + number, batches, protocol.epochs)
            rows = order[number * batch_size : (number + 1) * batch_size]
            loss, asked = _step(model, optimizer, trainer, rate, data, ends, rows)
            place.loss, place.asked = place.loss + loss, place.asked + asked
            place.tokens += int(ends[rows].sum())
            place.batch = number + 1
            tick()
            if folder is not None and (number + 1) % LOG_EVERY == 0:
                folder.log(place.epoch * batches + number + 1, {"loss": loss / max(1, asked), "learning_rate": rate})
            if watch is not None:
                watch(_progress(place, protocol, batches, loss / max(1, asked)))
            if loss != loss:
                place.stopped = "diverged"
            elif place.seconds > min(protocol.hours * 3600, seconds_left):
                place.stopped = "time limit"
            if place.stopped:
                break
            if stop.asked or clock - saved > SAVE_SECONDS:
                save()
                saved = clock
                stop.check()
        found_accuracy = measure(model, validation, validation_ends)
        tick()
        place.epochs.append(
            {
                "loss": place.loss / max(1, place.asked),
                "validation_loss": found_accuracy.loss,
                "validation_accuracy": found_accuracy.accuracy,
                "learning_rate": trainer.rate(
                    place.epoch * batches + max(0, place.batch - 1), batches, protocol.epochs
                ),
                "seconds": place.epoch_seconds,
            }
        )
        if found_accuracy.accuracy > place.best_accuracy:
            place.best_epoch, place.best_accuracy = place.epoch, found_accuracy.accuracy
            best = {name: value.clone() for name, value in model.state_dict().items()}  # a copy: training goes on
        place.epoch, place.batch, place.loss, place.asked, place.epoch_seconds = place.epoch + 1, 0, 0.0, 0, 0.0
        if folder is not None:
            folder.log(place.epoch * batches, place.epochs[-1])
        place.stopped = place.stopped or why_stop(place.epochs, protocol)
        save()
        saved = time.monotonic()
        stop.check()
    model.load_state_dict(best)
    return place


def why_stop(epochs: list[dict[str, float]], protocol: TrainingProtocol) -> str:
    """The reason to stop after these epochs, or an empty string."""
    last = epochs[-protocol.perfect :] if protocol.perfect else []
    if last and len(last) == protocol.perfect and all(each["validation_accuracy"] == 1 for each in last):
        return "perfect"
    if len(epochs) >= protocol.epochs:
        return "all epochs"
    losses = [each["validation_loss"] for each in epochs]
    means = [sum(losses[i : i + protocol.window]) / protocol.window for i in range(len(losses) - protocol.window + 1)]
    lowest, waited = float("inf"), 0
    for mean in means:
        lowest, waited = (mean, 0) if mean < lowest - protocol.min_delta else (lowest, waited + 1)
    return "no improvement" if waited >= protocol.patience else ""


def _step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    trainer: Trainer,
    rate: float,
    data: Batch,
    ends: Tensor,
    rows: Tensor,
) -> tuple[float, int]:
    """One step of the optimiser; the summed loss and the number of answers asked for."""
    device = next(model.parameters()).device
    targets = data.targets[rows]
    asked = int((targets != IGNORE).sum())
    optimizer.zero_grad()
    total = 0.0
    for group in torch.argsort(ends[rows], stable=True).split(TOGETHER):  # type: ignore[no-untyped-call]
        longest = int(ends[rows[group]].max())
        tokens, answers = data.tokens[rows[group], :longest].to(device), targets[group, :longest].to(device)
        share = int((answers != IGNORE).sum()) / max(1, asked)
        if not share:
            continue  # no answers, and no steps
        loss = mean_loss(model, tokens, answers) * share
        loss.backward()  # type: ignore[no-untyped-call]
        total += float(loss.detach().double())
    for group_of_parameters in optimizer.param_groups:
        group_of_parameters["lr"] = rate
    if trainer.clip is not None:
        nn.utils.clip_grad_norm_(model.parameters(), trainer.clip)
    optimizer.step()
    return total * asked, asked


def mean_loss(model: nn.Module, tokens: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy of the answers asked for: by the model's own `loss`, which needs no logits, if it has one."""
    own: Any = getattr(model, "loss", None)
    if own is not None:
        loss: Tensor = own(tokens, targets, ignore_index=IGNORE)[0]
        return loss
    logits = model(tokens)[0]
    kept = targets != IGNORE
    return mean_cross_entropy(logits[kept], targets[kept])


def _ends(batch: Batch) -> Tensor:
    """For each row the number of steps up to its last answer."""
    steps = torch.arange(1, batch.targets.shape[1] + 1)
    return ((batch.targets != IGNORE) * steps).amax(1)


def _load(model: nn.Module, tensors: dict[str, Tensor], prefix: str) -> None:
    model.load_state_dict(
        {name.removeprefix(prefix): each for name, each in tensors.items() if name.startswith(prefix)}
    )


def _progress(place: Place, protocol: TrainingProtocol, batches: int, loss: float) -> Progress:
    accuracy = place.epochs[-1]["validation_accuracy"] if place.epochs else None
    speed = place.tokens / max(place.seconds, 1e-9)
    return Progress(place.epoch, protocol.epochs, place.batch, batches, loss, accuracy, speed)
