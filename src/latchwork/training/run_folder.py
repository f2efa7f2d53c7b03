"""The folder of a run: what every training leaves on disk, under every plan."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from latchwork.differences import differences, summary
from latchwork.files import finite_values, read_json, read_text, write_json, write_text
from latchwork.run_lock import run_lock
from latchwork.training.distributed import Processes
from latchwork.training.manifest import manifest

MODEL = "model"
MOST_METRICS = 1 << 32  # bytes of metrics.jsonl
REMEDY = "Choose another --out, or remove that folder"


class RunFolder:
    """The folder of one run.

    manifest.json: the complete config, versions, commit and machine. metrics.jsonl: one line per measurement.
    tensorboard/: the same as events, if TensorBoard is installed. checkpoints/: until the run is finished.
    model/: the trained model, as `save` writes it. record.json: the result; once it is there the run is finished.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.path.mkdir(parents=True, exist_ok=True)
        self.manifest, self.metrics = self.path / "manifest.json", self.path / "metrics.jsonl"
        self.checkpoints, self.model, self.record = (self.path / name for name in ("checkpoints", MODEL, "record.json"))
        self.lines = 0  # of metrics
        self._events: Any = None

    def check(self, config: Mapping[str, Any]) -> None:
        """Raise ValueError, which says what differs, if the folder holds a run of another config."""
        found = read_json(self.manifest) or read_json(self.record)  # where records alone are kept, they say of what
        if found is None:
            return
        if lines := differences(found.get("config"), finite_values(config)):
            raise ValueError(f"{self.path} holds a run of another config: {summary(lines)}. {REMEDY}")

    def finished(self, config: Mapping[str, Any]) -> dict[str, Any] | None:
        """The record of this config, or None if the run is not finished; another config is an error."""
        self.check(config)
        return read_json(self.record)

    def begin(self, description: Mapping[str, Any]) -> None:
        """Write the manifest, or check that the folder belongs to this very run."""
        self.check(description["config"])
        if not self.manifest.exists():
            write_json(self.manifest, description)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Append one line of metrics, and the same to TensorBoard."""
        with self.metrics.open("a") as file:
            file.write(json.dumps({"step": step, **values}) + "\n")
        self.lines += 1
        if (events := self._writer(step)) is not None:
            for name, value in values.items():
                events.add_scalar(name, value, step)

    def _writer(self, step: int) -> Any:
        """The TensorBoard writer; events from `step` on, of a run that was cut off, are discarded."""
        if self._events is None:
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError:
                return None
            self._events = SummaryWriter(str(self.path / "tensorboard"), purge_step=step)
        return self._events

    def cut(self, lines: int) -> None:
        """Keep only the first lines of metrics: those from before the checkpoint that is resumed."""
        kept = read_text(self.metrics, MOST_METRICS).splitlines(keepends=True)[:lines] if lines else []
        write_text(self.metrics, "".join(kept))
        self.lines = lines

    def finish(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Write the record, with the manifest in it, and return it. Checkpoints are no longer needed."""
        description = read_json(self.manifest) or {}
        whole = {"config": description.pop("config", None), **record, "manifest": description}
        write_json(self.record, whole)
        shutil.rmtree(self.checkpoints, ignore_errors=True)
        self.close()
        return read_json(self.record) or {}

    def close(self) -> None:
        """Close the TensorBoard writer."""
        if self._events is not None:
            self._events.close()
            self._events = None


@contextmanager
def open_run(path: str | os.PathLike[str], config: Mapping[str, Any], here: Processes) -> Iterator[RunFolder]:
    """The folder, locked, with its manifest. What keeps the first process from that is an error in all processes.

    config: complete and resolved, plain values; a folder of another config is an error that says what differs.
    """
    folder, problem = RunFolder(path), None
    with ExitStack() as held:
        if here.first:
            try:
                held.enter_context(run_lock(folder.path))
                folder.begin(manifest(dict(config)))
            except (OSError, ValueError) as error:
                problem = error
        problem = here.agree(problem)
        if problem is not None:
            raise problem
        held.callback(folder.close)
        yield folder
