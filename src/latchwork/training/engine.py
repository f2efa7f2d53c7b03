"""The loop of pretraining: step after step, with what is logged, validated and saved on the way."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from math import exp, isfinite
from typing import Any

import torch
from torch import nn

from latchwork.evaluation.estimate import Estimate, estimate
from latchwork.files import read_json, write_json
from latchwork.modules.state import State
from latchwork.seeds import generator
from latchwork.signals import NEVER, Stop, Stopped
from latchwork.training.checkpoint import Tell, find_checkpoint, load_checkpoint, load_state, save_checkpoint
from latchwork.training.config import PretrainingConfig
from latchwork.training.distributed import Processes, Strategy, accumulate, share_model
from latchwork.training.folder import RunFolder
from latchwork.training.network import Network
from latchwork.training.optimizer import make_optimizer, set_step
from latchwork.training.windows import Batch, Split, read_batches, rows_of, share, validation_batch

CHECKPOINTS, VALIDATION = "checkpoints", "validation"


class DivergedError(RuntimeError):
    """The loss or its gradient is no longer a number; the weights are still those before."""


@dataclass
class Place:
    """Where a training stands: what a checkpoint holds besides tensors."""

    step: int = 0  # steps done
    tokens: int = 0  # seen in them
    seconds: float = 0.0  # that they took, without validation
    processor_seconds: float = 0.0  # of this process, all threads together: what a busy machine changes less
    lines: int = 0  # of metrics


@dataclass(frozen=True)
class Progress:
    """What is shown after a step."""

    step: int
    steps: int
    loss: float
    learning_rate: float
    gradient_norm: float
    tokens_per_second: float
    utilisation: float | None  # of the peak, if that is known
    text: str = ""  # what is done besides


Watch = Callable[[Progress], None]


class Training:
    """One run, as one of its processes sees it. What is begun in the folder is resumed; the first process writes."""

    def __init__(
        self,
        config: PretrainingConfig,
        model: nn.Module,
        splits: tuple[Split, Split],
        *,
        folder: RunFolder,
        here: Processes,
        strategy: Strategy = "ddp",
        flops: float = 0.0,
        peak: float | None = None,
        watch: Watch | None = None,
        tell: Tell = lambda text: None,
        stop: Stop = NEVER,
    ) -> None:
        share(rows_of(config, 0), here.rank, here.world)  # an error now rather than at the first step
        self.config, self.model, self.here, self.folder = config, model, here, folder
        self.train_split, self.validation_split = splits
        self.flops, self.peak, self.watch, self.tell, self.stop = flops, peak, watch, tell, stop
        network = Network(model)
        self.network = share_model(network, strategy, here)
        if config.compile:
            network.compile()
        self.optimizer = make_optimizer(model, config.optimizer)
        self.place = Place()
        self.states: list[State] = []  # of each batch of the last step, under tbptt
        self.last_validation: Estimate | None = None
        self._resume()

    def _resume(self) -> None:
        path = find_checkpoint(self.folder.path / CHECKPOINTS, self.here, self.tell)
        if path is None:
            if self.here.first:
                self.folder.cut(0)
            return
        found = load_checkpoint(path, self.model, self.optimizer, self.here)
        try:
            self.place = Place(**found)
        except TypeError as error:
            raise ValueError(f"{path} is not a checkpoint of this release: {error}") from None
        step = max(0, self.place.step - 1)
        state = load_state(path, share(rows_of(self.config, step), self.here.rank, self.here.world))
        if state is not None:
            self.states = _split(state.to(self.here.device), self.config.batch.micro)
        if self.here.first:
            self.folder.cut(self.place.lines)
            self.tell(f"resuming after step {self.place.step:,} of {self.config.steps:,}")
        kept = self.folder.path / VALIDATION / f"{self.place.step:08d}.json"
        if (validated := self.here.agree(read_json(kept) if self.here.first else None)) is not None:
            self.last_validation = Estimate(validated["mean"], validated["margin"])

    def run(self) -> tuple[Place, Estimate]:
        """Train to the end; where it stands, and the loss there. When a stop is asked: save, and raise Stopped."""
        config, place = self.config, self.place
        mark = (place.tokens, place.seconds)
        if self.last_validation is None and self._validates():
            self.validate()  # a stop has cut it off
        while place.step < config.steps:
            self.last_validation = None
            start, processor_start = time.monotonic(), time.process_time()
            rate = set_step(self.optimizer, config, place.step)
            loss, norm = self._step()
            place.step += 1
            place.tokens += rows_of(config, place.step - 1) * config.batch.context
            place.seconds += time.monotonic() - start
            place.processor_seconds += time.process_time() - processor_start
            speed = (place.tokens - mark[0]) / max(1e-9, place.seconds - mark[1])
            progress = Progress(place.step, config.steps, loss, rate, norm, speed, self._utilisation(speed))
            if place.step % config.log_every == 0:
                self._log(
                    {
                        "loss": loss,
                        "learning_rate": rate,
                        "gradient_norm": norm,
                        "tokens": place.tokens,
                        "tokens_per_second": speed,
                        "utilisation": progress.utilisation,
                    }
                )
                mark = (place.tokens, place.seconds)
            if self.watch is not None:
                self.watch(progress)
            if self._validates():
                self.validate(progress)
            stopping = self.here.any(self.stop.asked)
            if stopping or place.step == config.steps or place.step % config.checkpoint.every == 0:
                self.save()
            if stopping:
                raise Stopped(self.stop.number or signal.SIGTERM)
        assert self.last_validation is not None
        return place, self.last_validation

    def _validates(self) -> bool:
        """Whether there is a validation after this step."""
        step, every = self.place.step, self.config.validation.every
        return step == self.config.steps or (step > 0 and step % every == 0)

    def _step(self) -> tuple[float, float]:
        """One step of the optimiser; its loss, and the norm of its gradient before clipping."""
        config, here = self.config, self.here
        batches = read_batches(config, self.train_split, self.place.step, here.rank, here.world)
        torch.manual_seed(_dropout_seed(config.seed, self.place.step, here.rank))
        self.network.train()
        self.optimizer.zero_grad()
        rows, total, states = sum(len(batch.tokens) for batch in batches), torch.zeros((), device=here.device), []
        for number, batch in enumerate(batches):
            state = self.states[number] if batch.carried else None
            with accumulate(self.network, number == len(batches) - 1):
                loss, after = self._loss(batch, state)
                (loss * (len(batch.tokens) / rows)).backward()
            total += loss.detach() * (len(batch.tokens) / rows)
            states.append(after)
        mean = here.mean(total)
        norm: Any = nn.utils.clip_grad_norm_(self.model.parameters(), config.optimizer.clip or float("inf"))
        norm = float(norm.full_tensor() if hasattr(norm, "full_tensor") else norm)
        if not (isfinite(mean) and isfinite(norm)):
            raise DivergedError(
                f"step {self.place.step + 1:,}: the loss is {mean} and its gradient's norm {norm}; the last checkpoint "
                "is from before, and another config (a lower learning rate, clipping) must go in another --out"
            )
        self.optimizer.step()
        self.states = states if config.tbptt is not None else []
        return mean, norm

    def _loss(self, batch: Batch, state: State | None) -> Any:
        device = self.here.device
        tokens, targets = batch.tokens.to(device), batch.targets.to(device)
        reset = None if batch.reset is None else batch.reset.to(device)
        with self._precision():
            return self.network(tokens, targets, state, reset)

    def _precision(self) -> AbstractContextManager[Any]:
        return torch.autocast(self.here.device.type, torch.bfloat16, enabled=self.config.precision == "bfloat16")

    def validate(self, progress: Progress | None = None) -> Estimate:
        """The loss of the validation batches, which the processes share; each batch's loss is kept on disk."""
        config, here = self.config, self.here
        number = config.validation.batches
        each = -(-number // here.world)  # as many for every process: FSDP's wait for each other
        losses = torch.zeros(each, dtype=torch.float64, device=here.device)
        self.network.eval()
        with torch.no_grad():
            for turn in range(each):
                if self.stop.asked and here.world == 1:  # it begins anew when the run resumes
                    self.save()
                    self.stop.check()
                self._show(progress, f"validating {turn * here.world:,} of {number:,}")
                batch = validation_batch(config, self.validation_split, min(turn * here.world + here.rank, number - 1))
                losses[turn] = self._loss(batch, None)[0].double()
        self._show(progress, "")
        values = torch.stack(here.gather(losses), 1).flatten()[:number].tolist()
        found = estimate(values)
        if here.first:
            (self.folder.path / VALIDATION).mkdir(exist_ok=True)
            kept = {"step": self.place.step, **asdict(found), "losses": values}
            write_json(self.folder.path / VALIDATION / f"{self.place.step:08d}.json", kept)
        perplexity = exp(min(found.mean, 700.0))
        named = {"loss": found.mean, "margin": found.margin, "perplexity": perplexity}
        self._log({f"validation_{name}": value for name, value in named.items()})
        self.tell(f"step {self.place.step:,}: validation loss {found.mean:.4f} ± {found.margin:.4f}")
        self.last_validation = found
        return found

    def save(self) -> None:
        """Write a checkpoint."""
        if self.here.first:
            self.place.lines = self.folder.lines
        state = State.join(self.states) if self.states else None
        path, keep = self.folder.path / CHECKPOINTS, self.config.checkpoint.keep
        save_checkpoint(path, asdict(self.place), self.model, self.optimizer, state, self.here, keep)

    def close(self) -> None:
        """Let go of DDP while the processes are still together.

        It keeps their group, and frees it with Python's lock held if it is the last to; a thread of gloo's that is not
        quite done with a message may wait for that lock, and the two for each other, for ever.
        """
        self.network = self.model

    def _log(self, values: dict[str, Any]) -> None:
        if self.here.first:
            self.folder.log(self.place.step, {name: value for name, value in values.items() if value is not None})

    def _show(self, progress: Progress | None, text: str) -> None:
        if self.watch is not None and progress is not None:
            self.watch(replace(progress, text=text))

    def _utilisation(self, speed: float) -> float | None:
        return None if self.peak is None else speed * self.flops / (self.peak * self.here.world)


def _dropout_seed(seed: int, step: int, rank: int) -> int:
    """Dropout draws from torch's generator, which is set anew at every step: so it has no state to be saved."""
    return int(generator(seed, f"dropout {rank}", step).integers(2**63))


def _split(state: State, rows: int) -> list[State]:
    numbers = torch.arange(state.batch_size)
    return [state.select(numbers[first : first + rows]) for first in range(0, state.batch_size, rows)]
