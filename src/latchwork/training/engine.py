"""The engine: the only place where a gradient step is taken, checked, logged, saved and resumed."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from math import isfinite
from typing import Any

import torch
from torch import Tensor, nn

from latchwork.baselines.registry import fresh
from latchwork.seeds import generator
from latchwork.signals import NEVER, Stop, Stopped
from latchwork.training.checkpoint import Tell, find_checkpoint, load_checkpoint, save_checkpoint
from latchwork.training.distributed import (
    Processes,
    Strategy,
    accumulate,
    load_whole,
    share_model,
    whole_tensors,
)
from latchwork.training.plan import Plan, Step
from latchwork.training.run_folder import RunFolder


class DivergedError(RuntimeError):
    """The loss or its gradient is not finite. The weights are those before the step."""

    def __init__(self, step: int, loss: float, norm: float) -> None:
        super().__init__(
            f"step {step + 1:,}: the loss is {loss} and the norm of its gradient {norm}; the last checkpoint is from "
            "before. Another config (a lower learning rate, clipping) needs another folder"
        )
        self.step, self.loss, self.norm = step, loss, norm


@dataclass
class Place:
    """Where a training stands: what a checkpoint holds besides tensors."""

    step: int = 0  # steps done
    tokens: int = 0  # seen in them
    seconds: float = 0.0  # that they took
    evaluation_seconds: float = 0.0  # that evaluations took
    processor_seconds: float = 0.0  # of steps, of this process, all threads together: a busy machine changes it less
    lines: int = 0  # of metrics
    evaluated: bool = True  # False: the evaluation after this step is still to be done
    stopped: str = ""  # why it is over


@dataclass(frozen=True)
class Progress:
    """What is shown after a step. done, total, text: as the plan measures them."""

    step: int
    done: float
    total: float | None
    loss: float
    learning_rate: float
    gradient_norm: float
    tokens_per_second: float
    utilisation: float | None = None  # of the peak, if that is known
    text: str = ""


Watch = Callable[[Progress], None]


class Training:
    """One run, in one of its processes. An unfinished run in the folder is resumed; the first process writes.

    folder: None trains in memory alone. flops and peak: to say what part of the machine is used. stop: when it asks,
    the run saves and raises Stopped.
    """

    def __init__(
        self,
        plan: Plan,
        model: nn.Module,
        *,
        folder: RunFolder | None = None,
        here: Processes | None = None,
        strategy: Strategy = "ddp",
        watch: Watch | None = None,
        tell: Tell = lambda text: None,
        stop: Stop = NEVER,
    ) -> None:
        here = here or Processes(0, 1, next(model.parameters()).device)
        self.plan, self.model, self.folder, self.here = plan, model, folder, here
        self.watch: Watch | None = watch if here.first else None
        self.tell: Tell = tell if here.first else lambda text: None
        self.stop = stop
        network = plan.network(model)
        self.network = share_model(network, strategy, here)
        if plan.compile:
            network.compile()
        self.optimizer = plan.optimizer(model)
        self.parameters = [each for each in model.parameters() if each.requires_grad]
        self.place = Place()
        self.last: Progress | None = None
        self._resume()
        plan.start(self)
        self._saved = time.monotonic()
        self._mark = (self.place.tokens, self.place.seconds)

    def _resume(self) -> None:
        if self.folder is None:
            return
        path = find_checkpoint(self.folder.checkpoints, self.here, self.tell)
        if path is None:
            if self.here.first:
                self.folder.cut(0)
            return
        found, tensors = load_checkpoint(path, self.model, self.optimizer, self.here)
        try:
            self.plan.restore(found.pop("plan"))
            self.place = Place(**found)
            self.plan.restore_tensors(tensors, self.here)
        except (KeyError, TypeError, AttributeError, RuntimeError) as error:
            raise ValueError(f"{path} is not a checkpoint of this plan and release: {error}") from None
        self.plan.stopped = self.place.stopped
        if self.here.first:
            self.folder.cut(self.place.lines)
            self.tell(f"resuming after step {self.place.step:,}")

    def run(self) -> Place:
        """Train until the plan is over. When a stop is asked: save, and raise Stopped."""
        plan, place, mode = self.plan, self.place, self.model.training
        if not place.evaluated:
            self._evaluate()  # a stop has cut it off
        while not plan.stopped:
            start, processor_start = time.monotonic(), time.process_time()
            step: Step | None = None
            try:
                step = self._step()
            except DivergedError as error:
                plan.diverged(self, error)
            place.step += 1
            place.seconds += time.monotonic() - start
            place.processor_seconds += time.process_time() - processor_start
            if step is not None:
                place.tokens += step.tokens
                plan.observe(self, step)
                self._report(step)
            place.evaluated = not plan.due()
            if not place.evaluated:
                self._evaluate()
            stopping = self.here.any(self.stop.asked)
            if stopping or plan.stopped or self._save_is_due():
                self.save()
            if stopping:
                raise Stopped(self.stop.number or signal.SIGTERM)
        self.model.train(mode)
        return place

    def _step(self) -> Step:
        """One gradient step; the weights are left alone if the loss or its gradient is not finite."""
        plan, here, number = self.plan, self.here, self.place.step
        batches = plan.batches(number, here.rank, here.world)
        torch.manual_seed(_dropout_seed(plan.seed, number, here.rank))
        if not self.network.training:
            self.network.train()
        rate = plan.set_optimizer(self.optimizer, number)
        self.optimizer.zero_grad()
        total: Tensor | float = 0.0
        tokens = asked = right = 0
        for place, (batch, weight) in enumerate(batches):
            with accumulate(self.network, place == len(batches) - 1):
                found = plan.loss(self.network, batch)
                # The processes' gradients are averaged, hence times world.
                (found.loss * (weight * here.world)).backward()  # type: ignore[no-untyped-call]
            total = total + found.loss.detach() * weight
            if weight:
                tokens, asked, right = tokens + found.tokens, asked + found.asked, right + found.right
        loss, *counts = here.sums(float(total), tokens, asked, right)
        found_norm: Any = nn.utils.clip_grad_norm_(self.parameters, plan.clip or float("inf"))
        norm = float(found_norm.full_tensor() if hasattr(found_norm, "full_tensor") else found_norm)
        if not (isfinite(loss) and isfinite(norm)):
            raise DivergedError(number, loss, norm)
        self.optimizer.step()
        return Step(number, loss, norm, rate, *map(int, counts))

    def _report(self, step: Step) -> None:
        """Log a line of metrics if it is due, and show the progress."""
        due = self.folder is not None and self.place.step % self.plan.log_every == 0
        if not due and self.watch is None:
            return
        speed = (self.place.tokens - self._mark[0]) / max(1e-9, self.place.seconds - self._mark[1])
        peak = None if self.plan.peak is None else speed * self.plan.flops / (self.plan.peak * self.here.world)
        if due:
            shown = {"loss": step.loss, "learning_rate": step.learning_rate, "gradient_norm": step.gradient_norm}
            shown |= {"tokens": self.place.tokens, "tokens_per_second": speed}
            self.log({**shown, **({} if peak is None else {"utilisation": peak}), **self.plan.metrics()})
            self._mark = (self.place.tokens, self.place.seconds)
        if self.watch is not None:
            done, whole, text = self.plan.progress(self.place.step)
            self.last = Progress(
                self.place.step, done, whole, step.loss, step.learning_rate, step.gradient_norm, speed, peak, text
            )
            self.watch(self.last)

    def _evaluate(self) -> None:
        start = time.monotonic()
        self.network.eval()
        self.plan.evaluate(self)
        self.place.evaluation_seconds += time.monotonic() - start
        self.place.evaluated = True
        self.show("")

    def log(self, values: dict[str, Any]) -> None:
        """A line of metrics, if there is a folder."""
        if self.folder is not None and self.here.first:
            self.folder.log(self.place.step, values)

    def show(self, text: str) -> None:
        """What is being done besides steps."""
        if self.watch is not None and self.last is not None and text != self.last.text:
            self.last = replace(self.last, text=text)
            self.watch(self.last)

    def forget_moments(self) -> None:
        """Make the optimizer as new: it forgets the gradients that it has seen."""
        for state in self.optimizer.state.values():
            for each in state.values():
                each.zero_()

    def whole_model(self) -> nn.Module:
        """The model to evaluate: itself, or where each process has a part of it (FSDP), a copy in one piece.

        All processes call it.
        """
        if not any(hasattr(each, "full_tensor") for each in self.parameters):
            return self.model
        whole = fresh(self.model).to(self.here.device)
        load_whole(whole, whole_tensors(self.model))
        return whole.eval()

    def pause(self) -> None:
        """Within an evaluation: if a stop is asked, save and raise Stopped. Several processes go on to its end."""
        if self.stop.asked and self.here.world == 1:
            self.save()
            self.stop.check()

    def _save_is_due(self) -> bool:
        plan = self.plan
        if plan.save_every is not None and self.place.step % plan.save_every == 0:
            return True
        if self.folder is None or plan.save_seconds is None:
            return False
        return self.here.any(self.here.first and time.monotonic() - self._saved > plan.save_seconds)

    def save(self) -> None:
        """Write a checkpoint, if there is a folder."""
        if self.folder is None:
            return
        self.place.lines, self.place.stopped = self.folder.lines, self.plan.stopped
        place, tensors = {**asdict(self.place), "plan": self.plan.state()}, self.plan.tensors(self.here)
        save_checkpoint(self.folder.checkpoints, place, self.model, self.optimizer, tensors, self.here, self.plan.keep)
        self._saved = time.monotonic()

    def close(self) -> None:
        """Let go of DDP while the processes are still together.

        DDP keeps their group. If DDP is the last to free it, it does so with Python's lock held; a thread of gloo that
        still handles a message may wait for that lock, and then both wait for ever.
        """
        self.network = self.model


def _dropout_seed(seed: int, step: int, rank: int) -> int:
    """Dropout draws from torch's generator, which gets a new seed at each step: so it has no state to save."""
    return int(generator(seed, f"dropout {rank}", step).integers(2**63))
