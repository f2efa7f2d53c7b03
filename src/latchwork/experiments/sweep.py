"""Many runs: every experiment for as many seeds as its protocol asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from latchwork.evaluation.statistics import enough_seeds
from latchwork.experiments.experiment import Experiment
from latchwork.experiments.pool import Pool
from latchwork.experiments.run import config_of, finished, run_folder
from latchwork.training.protocol import Scale
from latchwork.training.run_folder import RunFolder
from latchwork.training.trainer import TRAINERS


@dataclass(frozen=True)
class Run:
    """One experiment with one batch size and one seed."""

    experiment: Experiment
    batch_size: int
    seed: int


@dataclass
class Sweep:
    """What has been done, and what failed."""

    records: dict[Run, dict[str, Any]] = field(default_factory=dict)
    errors: dict[Run, BaseException] = field(default_factory=dict)


def sweep(
    experiments: Sequence[Experiment],
    scale: Scale,
    pool: Pool,
    *,
    out: Path,
    batch_size: int | None = None,
    threads: int = 1,
    device: str = "cpu",
    watch: Callable[[Run, str], None] | None = None,
    look: Callable[[], None] | None = None,
) -> Sweep:
    """Run all, each batch size for min_seeds seeds and then one more at a time until `enough_seeds` says stop.

    batch_size: the only one; None is each that the experiment's trainer names.
    A run that fails ends its experiment; the others go on. If a folder holds a run of another config, none is started.
    watch: called with a run and "started", "done", "failed", or "finished before" if its record was there already.
    look: called about twice a second while runs are under way.
    """
    done, protocol = Sweep(), scale.training
    under_way: dict[Future[dict[str, Any]], Run] = {}
    found: dict[Run, dict[str, Any]] = {}

    def look_up(run: Run) -> RunFolder:
        """Make the folder, and take its record if it has one."""
        folder = RunFolder(run_folder(out.absolute(), scale.name, run.experiment, run.batch_size, run.seed))
        config = config_of(
            run.experiment, scale, batch_size=run.batch_size, seed=run.seed, threads=threads, device=device
        )
        if (record := finished(folder, config, protocol.hours)) is not None:
            found[run] = record
        return folder

    def start(run: Run) -> None:
        spent = sum(
            record["training"]["seconds"] for each, record in done.records.items() if each.experiment == run.experiment
        )
        job = {
            "experiment": asdict(run.experiment),
            "scale": asdict(scale),
            "batch_size": run.batch_size,
            "seed": run.seed,
            "out": str(out.absolute()),
            "threads": threads,
            "device": device,
            "seconds_left": protocol.hours * 3600 - spent,
        }
        future: Future[dict[str, Any]] = Future()
        try:
            folder = look_up(run)
            if run in found:
                future.set_result(found[run])
            else:
                future = pool.submit(job, folder.path)
        except (OSError, ValueError) as error:
            future.set_exception(error)
        under_way[future] = run
        if watch is not None:
            watch(run, "started")

    def start_next(experiment: str, batch_size: int) -> None:
        """One more seed, if none is under way or failed, there is time, and the rule asks for it."""

        def alike(runs: Iterable[Run]) -> list[Run]:
            return [run for run in runs if (run.experiment.name, run.batch_size) == (experiment, batch_size)]

        if alike([*done.errors, *under_way.values()]):
            return
        runs = sorted(alike(done.records), key=lambda run: run.seed)
        trainings = [done.records[run]["training"] for run in runs]
        if sum(each["seconds"] for each in trainings) > protocol.hours * 3600:
            return
        if not enough_seeds(
            [each["validation_accuracy"] for each in trainings],
            minimum=protocol.min_seeds,
            maximum=protocol.max_seeds,
            confidence=protocol.confidence,
            margin=protocol.margin,
        ):
            start(Run(runs[-1].experiment, batch_size, runs[-1].seed + 1))

    planned = [
        Run(experiment, size, seed)
        for experiment in experiments
        for size in (TRAINERS[experiment.trainer].batch_sizes if batch_size is None else [batch_size])
        for seed in range(protocol.min_seeds)
    ]
    for run in planned:
        look_up(run)
    for run in planned:
        start(run)
    while under_way:
        completed, _ = wait(under_way, timeout=0.5, return_when=FIRST_COMPLETED)
        if look is not None:
            look()
        ended = [under_way.pop(future) for future in completed]
        for run, future in zip(ended, completed, strict=True):
            if (error := future.exception()) is not None:
                done.errors[run] = error
            else:
                done.records[run] = future.result()
            if watch is not None:
                watch(run, "failed" if error is not None else "finished before" if run in found else "done")
        for name, batch_size in dict.fromkeys((run.experiment.name, run.batch_size) for run in ended):
            start_next(name, batch_size)
    return done
