"""What a run leaves on disk: a manifest, metrics line by line, a checkpoint, and at the end its record."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from latchwork.files import read_json, write_json, write_text


class RunFolder:
    """The folder of one run.

    manifest.json: what is run, on what. metrics.jsonl: one line a measurement. tensorboard/: the same, as events.
    checkpoint.safetensors: tensors and the place reached, in one file, so that they cannot disagree.
    record.json: the result; once it is there the run is finished.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.path.mkdir(parents=True, exist_ok=True)
        self.manifest, self.metrics = self.path / "manifest.json", self.path / "metrics.jsonl"
        self.checkpoint, self.record = self.path / "checkpoint.safetensors", self.path / "record.json"
        self._lines = 0
        self._events: Any = None

    def begin(self, manifest: Mapping[str, Any]) -> None:
        """Write the manifest, or check that the folder belongs to this very run."""
        found = read_json(self.manifest)
        if found is None:
            write_json(self.manifest, manifest)
        elif found.get("config") != json.loads(json.dumps(manifest["config"])):
            raise ValueError(f"{self.path} holds a run of another config, see its manifest.json: choose another --out")

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
        temporary = self.path / f".checkpoint.{os.getpid()}.tmp"
        metadata = {"place": json.dumps(place), "lines": str(self._lines)}
        save_file({name: each.detach().contiguous() for name, each in tensors.items()}, temporary, metadata)
        temporary.replace(self.checkpoint)

    def load(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """The checkpoint's tensors and place, or None. Metrics written after it are cut off: they come again."""
        if not self.checkpoint.exists():
            self.metrics.unlink(missing_ok=True)
            self._lines = 0
            return None
        try:
            with safe_open(self.checkpoint, "pt") as file:
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
                metadata = file.metadata()
        except SafetensorError as error:
            raise ValueError(f"{self.checkpoint} is not a checkpoint: {error}") from error
        self.cut(int(metadata["lines"]))
        return tensors, json.loads(metadata["place"])

    @property
    def lines(self) -> int:
        """How many lines of metrics there are."""
        return self._lines

    def cut(self, lines: int) -> None:
        """Keep the first lines of metrics only: those written before a checkpoint that is gone back to."""
        kept = self.metrics.read_text().splitlines(keepends=True)[:lines] if lines else []
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
