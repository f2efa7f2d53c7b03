"""A rehearsal of the paper's run: data, training on 2 processes, kill, resume, validation, samples, export.

    python benchmarks/pretraining_dry_run.py --size tiny    seconds: the same steps with a model of nothing
    python benchmarks/pretraining_dry_run.py --size paper   paper-112m itself, its batches cut down: minutes, 8 GB

Text and vocabulary are made up, so that nothing is fetched; every step is the command that a user types.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

END = "<|endoftext|>"


@dataclass(frozen=True)
class Size:
    """What is cut down, and how much made-up text there is."""

    vocabulary: int
    documents: int
    changes: tuple[str, ...]


CUT = ("compile=false", "log_every=1", "validation.every=3", "checkpoint.keep=2", "checkpoint.every=1")
SIZES = {
    "tiny": Size(
        300,
        60,
        (
            *CUT,
            "vocabulary=300",
            'model.options={"d_model": 16, "d_state": 24, "n_layers": 2, "conv_type": "gated"}',
            "steps=12",
            "batch.micro=2",
            "batch.context=16",
            "batch.accumulation=[[0, 1], [6, 2]]",
            "validation.batches=4",
            "validation.batch_size=2",
            "optimizer.weight_decay=[[0, 0.1], [9, 0.0]]",
        ),
    ),
    "paper": Size(
        50_257,
        400,
        (
            *CUT,
            "precision=float32",  # processors without instructions for bfloat16 take 25 times as long
            "steps=6",
            "batch.micro=2",
            "batch.context=128",
            "batch.accumulation=[[0, 1], [3, 2]]",
            "validation.batches=4",
            "validation.batch_size=1",
            "optimizer.weight_decay=[[0, 0.1], [5, 0.0]]",
        ),
    ),
}


def make_text(folder: Path, size: Size) -> None:
    """Documents of made-up words, and a tokenizer that has a token for each."""
    draw = random.Random(0)
    words = [f"w{number}" for number in range(size.vocabulary - 1)]
    with (folder / "text.jsonl").open("w") as file:
        for _ in range(size.documents):
            text = " ".join(draw.choices(words, k=draw.randint(50, 200)))
            file.write(json.dumps({"text": text}) + "\n")
    from tokenizers import Tokenizer, models, pre_tokenizers

    numbers = {word: number for number, word in enumerate([*words, END])}
    tokenizer = Tokenizer(models.WordLevel(numbers, unk_token=END))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens([END])
    tokenizer.save(str(folder / "tokenizer.json"))


def latchwork(*words: object) -> str:
    """Run a command to its end and return what it printed."""
    command = [sys.executable, "-m", "latchwork", *map(str, words)]
    print("$ latchwork", *words, file=sys.stderr, flush=True)
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def start_training(folder: Path, size: Size, strategy: str) -> subprocess.Popen[bytes]:
    """Start torchrun with two processes."""
    changes = [word for change in size.changes for word in ("--set", change)]
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "latchwork", "pretrain"]
    where = ["--corpus", folder / "corpus", "--out", folder / "run", "--strategy", strategy, "--device", "cpu"]
    words = [*command, "paper-112m", *where, *changes]
    print("$ torchrun --nproc-per-node 2", *map(str, words[5:]), file=sys.stderr, flush=True)
    return subprocess.Popen([sys.executable, *map(str, words)])


def children(process: int) -> list[int]:
    """The processes that a process has started."""
    return [int(each) for each in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def kill_after_checkpoint(training: subprocess.Popen[bytes], checkpoints: Path) -> list[str]:
    """Kill both processes with the signal that cannot be caught, once something is there to go on from."""
    while not (checkpoints.is_dir() and any(each.name.isdigit() for each in checkpoints.iterdir())):
        if training.poll() is not None:
            raise RuntimeError(f"training ended with {training.returncode} before its first checkpoint")
        time.sleep(0.01)
    for process in children(training.pid):
        os.kill(process, signal.SIGKILL)
    if training.wait() == 0:
        raise RuntimeError("training ended well, though its processes were killed")
    return sorted(each.name for each in checkpoints.iterdir())


def rehearse(folder: Path, size: Size, strategy: str) -> dict[str, object]:
    """All of it; returns what is worth knowing, and raises where something is not as it should be."""
    took: dict[str, float] = {}

    def done(name: str, since: float) -> None:
        took[name] = round(time.monotonic() - since, 1)

    start = time.monotonic()
    make_text(folder, size)
    latchwork(
        *("data", "prepare", folder / "text.jsonl", "--tokenizer", folder / "tokenizer.json"),
        *("--out", folder / "corpus", "--validation-documents", 20),
    )
    done("data", start)
    start = time.monotonic()
    left = kill_after_checkpoint(start_training(folder, size, strategy), folder / "run" / "checkpoints")
    done("training until killed", start)
    start = time.monotonic()
    if code := start_training(folder, size, strategy).wait():
        raise RuntimeError(f"the run did not go on: exit code {code}")
    done("training to the end", start)
    lines = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    steps = [line["step"] for line in lines if "loss" in line]
    if steps != list(range(1, len(steps) + 1)):
        raise RuntimeError(f"every step must be there once; got {steps}")
    start = time.monotonic()
    sample = latchwork("sample", folder / "run", "--prompt", "w1 w2", "--length", 5, "--seed", 0)
    done("sample", start)
    start = time.monotonic()
    latchwork("export", folder / "run", "--hf", folder / "hf")
    done("export", start)
    record = json.loads((folder / "run" / "record.json").read_text())
    return {
        "parameters": record["parameters"],
        "strategy": strategy,
        "killed with": left,
        "steps": record["step"],
        "tokens": record["tokens"],
        "validation": record["validation"],
        "sample": sample.strip(),
        "exported": sorted(each.name for each in (folder / "hf").iterdir()),
        "seconds": took,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="tiny")
    parser.add_argument("--strategy", choices=["ddp", "fsdp"], default="ddp")
    parser.add_argument("--json", type=Path, help="write what was found there too")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = {"size": options.size, **rehearse(Path(folder), SIZES[options.size], options.strategy)}
    text = json.dumps(found, indent=1)
    print(text)
    if options.json:
        options.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
