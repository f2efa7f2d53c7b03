"""What `--help` shows last for each command: lines to copy."""

from __future__ import annotations

EXAMPLES: dict[str, tuple[str, ...]] = {
    "check": ("latchwork check",),
    "version": ("latchwork version", "latchwork version --all"),
    "list": ("latchwork list", "latchwork list latching-4", "latchwork list --only zoo"),
    "run": (
        "latchwork run latching-4/minmax-s --seeds 1",
        "latchwork run latching-4 --scale smoke --jobs 2 --out runs",
    ),
    "runs": ("latchwork runs runs",),
    "evaluate": ("latchwork evaluate latching-4 'latching(4)' --length 1048576 --sequences 4",),
    "learn": ("latchwork learn events.csv --sequence session --event event --label alarm --out monitor",),
    "report": ("latchwork report runs --out report",),
    "pretrain": ("latchwork pretrain --show char-1m", "latchwork pretrain char-1m --corpus corpus --out run"),
    "export": ("latchwork export run --hf hf_model", "latchwork export s3 --onnx s3.onnx"),
    "data prepare": ("latchwork data prepare --help",),
    "sample": ("latchwork sample --help",),
    "eval-lm": ("latchwork eval-lm --help",),
    "monitor": (
        "latchwork monitor 'always (near implies speed <= 1)' drive.csv --plot drive.html",
        "tail -f log.csv | latchwork monitor 'x <= 1 since y >= 1' -",
    ),
    "compile": ("latchwork compile 'a(b|c)*d' --out model", "latchwork compile '(aaa)*' --method one_hot"),
    "extract": ("latchwork extract parity --out machine.json",),
    "certify": ("latchwork certify s3 'word_problem(S3)'", "latchwork certify model 'regular((ab)*, ab)'"),
    "draw": ("latchwork draw '(ab)*' --out machine.svg", "latchwork draw machine.json"),
    "explore": (
        "latchwork explore",
        "latchwork explore s3 --word '120 021' --open",
        "latchwork explore --regex 'a(b|c)*d'",
        "latchwork explore model --task 'latching(4)'",
    ),
}


def epilog(name: str) -> str | None:
    """The examples of a command as the last paragraphs of its help; None if it has none."""
    lines = EXAMPLES.get(name)
    return None if lines is None else "\n\n".join(["Examples:", *(f"  {line}" for line in lines)])
