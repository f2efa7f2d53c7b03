"""Runs of the study of characters: what each trains, and the small record that it leaves.

A record that is there is not made again, so that a study may be stopped, resumed, and shared by two processes: a run
is locked while it is under way, and resumes from its own checkpoint if it was killed.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from filelock import FileLock, Timeout

from latchwork import load_model
from latchwork.baselines.transformer import Transformer
from latchwork.data.corpus import Corpus
from latchwork.data.prepare import prepare
from latchwork.evaluation.by_position import evaluate_by_position
from latchwork.files import read_json, write_json, write_text
from latchwork.training.config import PretrainingConfig
from latchwork.training.manifest import manifest
from latchwork.training.presets import MUON, find_config
from latchwork.training.pretrain import complete, pretrain

Record = dict[str, Any]
OURS, NANOGPT = "char-1m", "char-1m-nanogpt"
MODELS = (OURS, "char-1m-transformer", "char-1m-lstm", "char-1m-gru", "char-1m-mamba")
TUNING_STEPS = 500
RATES = (2e-3, 4e-3, 8e-3, 1.6e-2)  # of Muon, for every model
SHORT, CONTEXT = 1024, 16_384
TIMING, ROUNDS, ROUND_STEPS = "timing.json", 7, 30
# GPT-2's tokens on the same text, of which there are a third of a million: after a few passes models learn it by heart.
SUBWORDS = ("bpe-10m", "bpe-10m-transformer", "bpe-10m-lstm")
SUBWORD_STEPS = 200


@dataclass(frozen=True)
class Run:
    """One training. stage: "tuning", "tokens", "time", "subwords". words: what sets it apart in its stage."""

    stage: str
    words: str
    config: PretrainingConfig
    contexts: bool = False

    @property
    def file(self) -> str:
        """The name of its record, which no other run has."""
        return f"{self.stage}/{self.config.name} {self.words}".replace(" ", "_") + ".json"


def tuning_runs(models: Sequence[str]) -> list[Run]:
    """Every model with every learning rate of Muon. Nothing else is tuned."""
    found = []
    for name in models:
        config = find_config(name)
        for rate in RATES:
            batch = replace(config.batch, order="random")  # 500 steps are half an epoch
            tried = replace(config, steps=TUNING_STEPS, optimizer=replace(MUON, learning_rate=rate), batch=batch)
            found.append(Run("tuning", f"{rate:g}", tried))
    return found


def token_runs(models: Sequence[str], seeds: int) -> list[Run]:
    """Every model and seed for as many tokens: seeds first, so that what is there early has all models."""
    return [
        Run("tokens", f"seed {seed}", replace(find_config(name), seed=seed), contexts=seed == 0)
        for seed in range(seeds)
        for name in models
    ]


def measure_steps(models: Sequence[str], corpus: Path, folder: Path) -> None:
    """Write how long a step of each model takes, in processor time: all models in turns, several rounds, the median."""
    seconds: dict[str, list[float]] = {name: [] for name in models}
    for _ in range(ROUNDS):
        for name in models:
            config = replace(find_config(name), steps=ROUND_STEPS)
            config = replace(config, validation=replace(config.validation, every=ROUND_STEPS, batches=2))
            with TemporaryDirectory() as scratch:
                record = pretrain(config, corpus, scratch, peak=1.0)
            seconds[name].append(record["processor_seconds"] / ROUND_STEPS)
    found = {name: {"median": statistics.median(each), "rounds": each} for name, each in seconds.items()}
    write_json(folder / TIMING, {"seconds": found, **manifest({"rounds": ROUNDS, "steps": ROUND_STEPS})})


def time_runs(models: Sequence[str], seeds: int, folder: Path) -> list[Run]:
    """Every model and seed in the processor time of nanoGPT's settings: as many steps as it makes in it."""
    timing = read_json(folder / TIMING)
    if timing is None:
        raise ValueError(f"{folder / TIMING} is missing: run characters.py TEXT --stages timing first")
    seconds = {name: each["median"] for name, each in timing["seconds"].items()}
    budget = find_config(NANOGPT).steps * seconds[NANOGPT]
    configs = [replace(find_config(name), steps=max(1, round(budget / seconds[name]))) for name in models]
    return [Run("time", f"seed {seed}", replace(config, seed=seed)) for seed in range(seeds) for config in configs]


def subword_runs(models: Sequence[str], seeds: int) -> list[Run]:
    """Models of GPT-2's tokens."""
    return [
        Run("subwords", f"seed {seed}", replace(find_config(name), steps=SUBWORD_STEPS, seed=seed))
        for seed in range(seeds)
        for name in models
    ]


def run_all(runs: Callable[[], Iterable[Run]], corpus: Path, folder: Path, scratch: Path) -> None:
    """Run what has no record yet. runs: asked anew after each, since a record may tell what is to be run next."""
    while True:
        waiting = [run for run in runs() if not is_done(run, folder)]
        if not any(run_once(run, corpus, folder, scratch) for run in waiting):
            return


def is_done(run: Run, folder: Path) -> bool:
    """Whether it has a record; one of another configuration is an error, for it would be taken for this one."""
    record = read_json(folder / run.file)
    if record is None:
        return False
    known = {name: value for name, value in record["config"].items() if name != "corpus"}
    if known != complete(validated_at_the_end(run.config)):
        raise ValueError(f"{folder / run.file} is the record of another configuration: take it away to run this one")
    return True


def validated_at_the_end(config: PretrainingConfig) -> PretrainingConfig:
    """The configuration without the validations on the way, which take time and change nothing."""
    return replace(config, validation=replace(config.validation, every=config.steps))


def run_once(run: Run, corpus: Path, folder: Path, scratch: Path) -> bool:
    """Train and write the record; False if it is there, or another process is at it."""
    path, own = folder / run.file, scratch / run.file.removesuffix(".json")
    path.parent.mkdir(parents=True, exist_ok=True)
    own.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(f"{own}.lock", timeout=0):
            if path.exists():
                return False
            config = validated_at_the_end(run.config)
            record = pretrain(config, corpus, own, peak=1.0)  # what part of the machine is used is not asked here
            more = {"read_through": read_through(own / "model", corpus)} if run.stage == "tokens" else {}
            if run.contexts:
                more["contexts"] = loss_by_context(own / "model", corpus, config.model.options.get("positions"))
            split = Corpus(corpus).validation
            bits = record["validation"]["mean"] / math.log(2) * len(split) / split.bytes
            kept = {name: value for name, value in record.items() if name not in ("peak", "manifest")}
            about = {name: record["manifest"][name] for name in ("versions", "commit", "hardware", "date")}
            write_text(path, json.dumps({**kept, "bits_per_byte": bits, **more, **about}) + "\n")
    except Timeout:
        return False
    loss, seconds = record["validation"]["mean"], record["processor_seconds"]
    print(f"{run.file:50} steps {run.config.steps:5} loss {loss:.4f} {seconds:6.1f} s", flush=True)
    return True


def read_through(path: Path, corpus: Path) -> float | None:
    """The loss over the validation text, read once from its beginning to its end; None for a Transformer.

    A recurrent model carries its state along; a Transformer's cache and time would grow with the text.
    """
    model = load_model(path)
    if isinstance(model, Transformer):
        return None
    split = Corpus(corpus).validation
    loss: float | None = evaluate_by_position(model, split, length=len(split) - 1, windows=1)["loss"]
    return loss


def loss_by_context(path: Path, corpus: Path, limit: int | None = None) -> list[list[Any]]:
    """The loss after so many characters, from 1 to 16,384 or the limit, in windows of the validation text.

    Up to 1,024 characters there are a hundred windows, for at each number of characters a window has one prediction;
    beyond, six.
    """
    split, model = Corpus(corpus).validation, load_model(path)
    lengths = [min(length, (len(split) - 1) // 2) for length in (SHORT, CONTEXT)]
    short, long = (
        evaluate_by_position(model, split, length=length, windows=windows, rows=2, limit=limit)["positions"]
        for length, windows in zip(lengths, (100, 6), strict=True)
    )
    positions: list[list[Any]] = short + [each for each in long if each[0] > lengths[0]]
    return positions


def read_stage(stage: str, folder: Path) -> list[Record]:
    """All records of a stage, by name; of tuning, with what set each apart as `words`."""
    found = []
    for path in sorted((folder / stage).glob("*.json")):
        record = read_json(path)
        assert record is not None
        found.append({**record, "words": path.stem.partition("_")[2].replace("_", " ")})
    return found


def mean_loss(records: Sequence[Record]) -> float:
    """Over seeds."""
    return statistics.mean(each["validation"]["mean"] for each in records)


def make_corpus(text: Path, out: Path, tokenizer: str = "characters") -> Path:
    """Its last tenth held out, as nanoGPT does."""
    if not out.exists():
        prepare([text], out, tokenizer, validation_fraction=0.1)
    return out


def training_text(text: Path, out: Path) -> Path:
    """The first nine tenths alone: what may be looked at while choosing."""
    whole = text.read_text()
    write_text(out, whole[: int(0.9 * len(whole))])
    return out
