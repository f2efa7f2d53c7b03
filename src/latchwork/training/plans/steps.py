"""Language models: a given number of steps over windows of a text, validated at intervals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from math import exp
from typing import Any

import torch
from torch import Tensor, nn

from latchwork.evaluation.estimate import Estimate, estimate
from latchwork.files import write_json
from latchwork.modules.state import State
from latchwork.training.config import PretrainingConfig
from latchwork.training.distributed import Processes
from latchwork.training.engine import Training
from latchwork.training.network import ModelWithLoss
from latchwork.training.optimizer import make_optimizer, set_step
from latchwork.training.plan import Outcome, Plan
from latchwork.training.windows import TokenSource, Windows, read_batches, rows_of, share, validation_batch

VALIDATION = "validation"


class Steps(Plan):
    """As PretrainingConfig says. splits: the tokens to train on, and those to validate on."""

    save_seconds = None

    def __init__(self, config: PretrainingConfig, splits: tuple[TokenSource, TokenSource], world: int = 1) -> None:
        share(rows_of(config, 0), 0, world)  # an error now rather than at the first step
        self.config, self.name, self.seed = config, config.name, config.seed
        self.train_split, self.validation_split = splits
        self.clip, self.log_every, self.compile = config.optimizer.clip, config.log_every, config.compile
        self.save_every, self.keep = config.checkpoint.every, config.checkpoint.keep
        self.step = 0
        self.states: dict[int, State] = {}  # under tbptt, the state after each batch of the last step
        self.next_states: dict[int, State] = {}
        self.validation: Estimate | None = None

    def network(self, model: nn.Module) -> nn.Module:
        return ModelWithLoss(model)

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return make_optimizer(model, self.config.optimizer)

    def set_optimizer(self, optimizer: torch.optim.Optimizer, step: int) -> float:
        return set_step(optimizer, self.config, step)

    def batches(self, step: int, rank: int, world: int) -> list[tuple[tuple[int, Windows], float]]:
        rows = rows_of(self.config, step)
        found = read_batches(self.config, self.train_split, step, rank, world)
        return [((place, batch), len(batch.tokens) / rows) for place, batch in enumerate(found)]

    def loss(self, network: nn.Module, batch: tuple[int, Windows]) -> Outcome:
        place, windows = batch
        loss, after = self._run(network, windows, self.states[place] if windows.carried else None)
        if self.config.tbptt is not None:
            self.next_states[place] = after
        return Outcome(loss, tokens=windows.tokens.numel())

    def _run(self, network: nn.Module, batch: Windows, state: State | None) -> Any:
        device = next(network.parameters()).device
        reset = None if batch.reset is None else batch.reset.to(device)
        with torch.autocast(device.type, torch.bfloat16, enabled=self.config.precision == "bfloat16"):
            return network(batch.tokens.to(device), batch.targets.to(device), state, reset)

    def observe(self, training: Training, step: Any) -> None:
        self.step = step.number + 1
        self.states, self.next_states = self.next_states, {}

    def due(self) -> bool:
        return self.step == self.config.steps or self.step % self.config.validation.every == 0

    def evaluate(self, training: Training) -> None:
        """The mean loss of the validation batches, which the processes share; the loss of each is kept on disk."""
        config, here, number = self.config, training.here, self.config.validation.batches
        each = -(-number // here.world)  # as many for every process: FSDP's wait for each other
        losses = torch.zeros(each, dtype=torch.float64, device=here.device)
        with torch.no_grad():
            for turn in range(each):
                training.pause()
                training.show(f"validating {turn * here.world:,} of {number:,}")
                batch = validation_batch(config, self.validation_split, min(turn * here.world + here.rank, number - 1))
                losses[turn] = self._run(training.network, batch, None)[0].double()
        values = torch.stack(here.gather(losses), 1).flatten()[:number].tolist()
        found = estimate(values)
        if here.first and training.folder is not None:
            folder = training.folder.path / VALIDATION
            folder.mkdir(exist_ok=True)
            write_json(folder / f"{self.step:08d}.json", {"step": self.step, **asdict(found), "losses": values})
        named = {"loss": found.mean, "margin": found.margin, "perplexity": exp(min(found.mean, 700.0))}
        training.log({f"validation_{name}": value for name, value in named.items()})
        training.tell(f"step {self.step:,}: validation loss {found.mean:.4f} ± {found.margin:.4f}")
        self.validation = found
        if self.step == config.steps:
            self.stopped = "all steps"

    def state(self) -> dict[str, Any]:
        return {"step": self.step, "validation": self.validation and asdict(self.validation)}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.step = state["step"]
        self.validation = state["validation"] and Estimate(**state["validation"])

    def tensors(self, here: Processes) -> dict[str, Tensor]:
        if not self.states:
            return {}
        own = State.join([self.states[place] for place in sorted(self.states)])
        return {name: torch.cat(here.gather(each), 1) for name, each in zip(State._fields, own, strict=True)}

    def restore_tensors(self, tensors: Mapping[str, Tensor], here: Processes) -> None:
        if not tensors:
            return
        rows = share(rows_of(self.config, max(0, self.step - 1)), here.rank, here.world)
        own, micro = State(**tensors).select(list(rows)).to(here.device), self.config.batch.micro
        places = [range(first, min(first + micro, len(rows))) for first in range(0, len(rows), micro)]
        self.states = {place: own.select(list(each)) for place, each in enumerate(places)}

    def progress(self, step: int) -> tuple[float, float | None, str]:
        return step, self.config.steps, ""
