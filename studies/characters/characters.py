"""Language models of characters of equal size: at equal tokens, at equal time, and by how much they have read.

    python studies/characters/characters.py TEXT --tune   learning rates, on the training text alone
    python studies/characters/characters.py TEXT          five seeds of every model; about two hours of one core
    python studies/characters/characters.py --report      the tables and the plot of README.md

TEXT is tinyshakespeare.txt, its last tenth held out, as nanoGPT does. The budget is that of nanoGPT's run on a CPU:
2,000 steps of 12 x 64 characters. Equal time is the processor time, on one thread, of 2,000 steps of GPT-2's
Transformer with nanoGPT's settings: another model gets as many steps as it makes in it, and its schedule is made for
them. Steps are timed in turns in one process (stage `timing`); on a machine with other work, run it when there is none.
Records are in results/characters; what has one is not run again, and several processes may share the work. Beside it,
one seed of models of GPT-2's tokens on the same text.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import characters_report
import torch
from characters_runs import (
    MODELS,
    NANOGPT,
    SUBWORDS,
    TIMING,
    make_corpus,
    measure_steps,
    run_all,
    subword_runs,
    time_runs,
    token_runs,
    training_text,
    tuning_runs,
)

ROOT = Path(__file__).parents[2]
RECORDS = ROOT / "results" / "characters"
PAGE = Path(__file__).with_name("README.md")
STAGES = ("tokens", "timing", "time", "subwords")


def main(arguments: list[str] | None = None) -> None:
    """Read the options and do it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path, nargs="?")
    parser.add_argument("--tune", action="store_true")
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--models", nargs="+", choices=(NANOGPT, *MODELS), default=(NANOGPT, *MODELS))
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=STAGES)
    parser.add_argument("--out", type=Path, default=Path("runs/characters"), help="checkpoints and corpora")
    parser.add_argument("--records", type=Path, default=RECORDS)
    options = parser.parse_args(arguments)
    if options.report:
        characters_report.write(options.records, PAGE)
        return
    if options.text is None or not options.text.is_file():
        parser.error(f"TEXT must be a file, tinyshakespeare.txt; got {options.text}")
    if options.seeds < 1:
        parser.error(f"--seeds must be at least 1; got {options.seeds}")
    torch.set_num_threads(1)
    options.out.mkdir(parents=True, exist_ok=True)
    if options.tune:
        corpus = make_corpus(training_text(options.text, options.out / "training.txt"), options.out / "tuning-corpus")
        tried = [name for name in options.models if name != NANOGPT]
        run_all(lambda: tuning_runs(tried), corpus, options.records, options.out)
        return
    corpus = make_corpus(options.text, options.out / "corpus")
    if "tokens" in options.stages:
        run_all(lambda: token_runs(options.models, options.seeds), corpus, options.records, options.out)
    if "timing" in options.stages and not (options.records / TIMING).exists():
        measure_steps((NANOGPT, *MODELS), corpus, options.records)
    if "time" in options.stages:
        timed = [name for name in options.models if name != NANOGPT]
        run_all(lambda: time_runs(timed, options.seeds, options.records), corpus, options.records, options.out)
    if "subwords" in options.stages:
        corpus = make_corpus(options.text, options.out / "subword-corpus", "gpt2")
        run_all(lambda: subword_runs(SUBWORDS, 1), corpus, options.records, options.out)


if __name__ == "__main__":
    main()
