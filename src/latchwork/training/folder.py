"""What a run leaves on disk: a manifest, metrics line by line, a checkpoint, and at the end its record."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from latchwork.files import read_json, read_text, write_json, write_text
from latchwork.tensor_files import read_tensors, write_tensors
from latchwork.training.differences import differences, summary

MOST_METRICS = 1 << 32  # bytes of metrics.jsonl
REMEDY = "Choose another --out, or remove that folder"


class RunFolder:
    """The folder of one run.

    manifest.json: what is run, on what. metrics.jsonl: one line a measurement. tensorboard/: the same, as events.
    checkpoint.safetensors: tensors and the place reached, in one file, so that they cannot disagree.
    record.json: the result; once it is there the run is finished.
    complete: brings the config in an older manifest up to date.
    """

    def __init__(self, path: str | os.PathLike[str], complete: Callable[[Any], Any] = lambda config: config) -> None:
        self.path, self._complete = Path(path), complete
        self.path.mkdir(parents=True, exist_ok=True)
        self.manifest, self.metrics = self.path / "manifest.json", self.path / "metrics.jsonl"
        self.checkpoint, self.record = self.path / "checkpoint.safetensors", self.path / "record.json"
        self._lines = 0
        self._events: Any = None

    def check(self, config: Mapping[str, Any]) -> None:
        """Raise ValueError, which says what differs, if the folder holds a run of another config."""
        found = read_json(self.manifest)
        if found is None:
            if self.record.exists():
                raise ValueError(f"{self.path} has a record but no manifest.json that says of which config. {REMEDY}")
            return
        if lines := differences(self._complete(found.get("config")), json.loads(json.dumps(config))):
            raise ValueError(f"{self.path} holds a run of another config: {summary(lines)}. {REMEDY}")

    def finished(self, config: Mapping[str, Any]) -> dict[str, Any] | None:
        """The record of this config, or None if it is not finished; another config is an error."""
        self.check(config)
        return read_json(self.record)

    def begin(self, manifest: Mapping[str, Any]) -> None:
        """Write the manifest, or check that the folder belongs to this very run."""
        self.check(manifest["config"])
        if not self.manifest.exists():
            write_json(self.manifest, manifest)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Append one line of metrics, and the same to TensorBoard."""
        with self.metrics.open("a") as file:
            file.write(json.dumps({"step": step, **values}) + "\n")
        self._lines += 1
        for name, value in values.items():
            self.events(step).add_scalar(name, value, step)

    def events(self, step: int) -> Any:
        """The TensorBoard writer; events from `step` on, of a run that was cut off, are thrown away."""
        if self._events is None:
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError as error:
                raise ImportError("TensorBoard is missing: pip install 'latchwork[experiments]'") from error
            self._events = SummaryWriter(str(self.path / "tensorboard"), purge_step=step)
        return self._events

    def save(self, tensors: Mapping[str, Tensor], place: Mapping[str, Any]) -> None:
        """Replace the checkpoint. Lines of metrics written until now belong to it."""
        write_tensors(self.checkpoint, tensors, {"place": json.dumps(place), "lines": str(self._lines)})

    def load(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """The checkpoint's tensors and place, or None. Metrics written after it are cut off: they come again."""
        if not self.checkpoint.exists():
            self.metrics.unlink(missing_ok=True)
            self._lines = 0
            return None
        tensors, metadata = read_tensors(self.checkpoint)
        try:
            lines, place = int(metadata["lines"]), json.loads(metadata["place"])
        except (KeyError, ValueError, RecursionError) as error:
            raise ValueError(f"{self.checkpoint} is not a checkpoint of a run: {error!r}") from error
        self.cut(lines)
        return tensors, place

    @property
    def lines(self) -> int:
        """How many lines of metrics there are."""
        return self._lines

    def cut(self, lines: int) -> None:
        """Keep the first lines of metrics only: those written before a checkpoint that is gone back to."""
        kept = read_text(self.metrics, MOST_METRICS).splitlines(keepends=True)[:lines] if lines else []
        write_text(self.metrics, "".join(kept))
        self._lines = lines

    def finish(self, record: Mapping[str, Any]) -> None:
        """Write the record. The checkpoint is no longer needed."""
        write_json(self.record, record)
        self.checkpoint.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Close the TensorBoard writer."""
        if self._events is not None:
            self._events.close()
            self._events = None


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimiser's state as tensors with names."""
    state = optimizer.state_dict()["state"]
    return {f"optimizer.{index}.{name}": value for index, each in state.items() for name, value in each.items()}


def load_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """The inverse of `optimizer_tensors`."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        if key.startswith("optimizer."):
            _, index, name = key.split(".", 2)
            state.setdefault(int(index), {})[name] = value
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
