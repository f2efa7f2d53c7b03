"""The configurations by name, as data: the paper's, smaller ones, and baselines of the same size for each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from latchwork.baselines.registry import ModelConfig
from latchwork.training.config import (
    BatchConfig,
    CheckpointConfig,
    OptimizerConfig,
    PretrainingConfig,
    ScheduleConfig,
    ValidationConfig,
)

GPT2_VOCABULARY = 50_257

# The table of the paper's appendix. The schedule is for 200,000 steps; the authors also lowered the rate by hand, at an
# unknown step, and ended the run at 100,000. The paper does not mention clipping, nor which weights decay.
PAPER = PretrainingConfig(
    name="paper-112m",
    steps=100_000,
    vocabulary=GPT2_VOCABULARY,
    model=ModelConfig(
        options={"d_model": 728, "d_state": 1456, "n_layers": 12, "conv_type": "gated", "output_gate": True}
    ),
    optimizer=OptimizerConfig(
        learning_rate=6e-4, betas=(0.9, 0.95), eps=1e-8, weight_decay=((0, 0.1), (94_000, 0.0)), clip=None
    ),
    schedule=ScheduleConfig(shape="linear", warmup=0.01, final=0.01, steps=200_000),
    batch=BatchConfig(micro=16, context=1024, accumulation=((0, 32), (36_000, 64))),
    validation=ValidationConfig(every=1000, batches=2000, batch_size=4),
    checkpoint=CheckpointConfig(every=1000, keep=3),
    precision="bfloat16",
    compile=True,
    log_every=50,
)

# 20 tokens for each parameter.
MEDIUM = replace(
    PAPER,
    name="medium-42m",
    steps=6_500,
    model=ModelConfig(options={"d_model": 512, "d_state": 512, "n_layers": 8, "conv_type": "gated"}),
    optimizer=OptimizerConfig(learning_rate=1e-3),
    schedule=ScheduleConfig(shape="cosine", warmup=0.02, final=0.1),
    batch=BatchConfig(micro=16, context=1024, accumulation=((0, 8),)),
    validation=ValidationConfig(every=500, batches=200, batch_size=4),
    checkpoint=CheckpointConfig(every=250, keep=3),
)

MUON = OptimizerConfig(name="muon", learning_rate=4e-3, matrix_rate=2.0, betas=(0.9, 0.99))

# The budget of nanoGPT's small run on characters, which a laptop can do: 2,000 steps of 12 x 64.
CHARACTERS = PretrainingConfig(
    name="char-1m",
    steps=2000,
    model=ModelConfig(
        options={
            "d_model": 124,
            "d_state": 244,
            "n_layers": 4,
            "ffn_act_fn": "swish",
            "ffn_proj_factor": 0.7,
            "ffn_dropout": 0.0,
            "use_postlayers_ffn": True,
            "s_r_init": "spread",
            "tie_weights": False,
        }
    ),
    optimizer=MUON,
    schedule=ScheduleConfig(shape="cosine", warmup=0.05, final=0.0),
    batch=BatchConfig(micro=12, context=64, order="epochs"),
    validation=ValidationConfig(every=500, batches=200, batch_size=12),
    checkpoint=CheckpointConfig(every=250, keep=2),
)

SUBWORDS = replace(
    CHARACTERS,
    name="bpe-10m",
    vocabulary=GPT2_VOCABULARY,
    model=ModelConfig(options={"d_model": 160, "d_state": 320, "n_layers": 6, "ffn_dropout": 0.1}),
    optimizer=MUON,
    batch=BatchConfig(micro=8, context=256, order="epochs"),
    validation=ValidationConfig(every=250, batches=50, batch_size=8),
)

# The sizes of each configuration's baselines. The widths give the nearest number of parameters.
BASELINES: dict[PretrainingConfig, dict[str, Mapping[str, Any]]] = {
    PAPER: {
        "transformer": {"n_layers": 12, "width": 728, "heads": 14},
        "lstm": {"n_layers": 4, "width": 1247},
        "gru": {"n_layers": 4, "width": 1357},
        "mamba": {"n_layers": 24, "width": 704},
    },
    MEDIUM: {
        "transformer": {"n_layers": 8, "width": 448, "heads": 8},
        "lstm": {"n_layers": 4, "width": 607},
        "gru": {"n_layers": 4, "width": 644},
        "mamba": {"n_layers": 16, "width": 440},
    },
    CHARACTERS: {
        "transformer": {"n_layers": 4, "width": 128, "heads": 4},
        "lstm": {"n_layers": 2, "width": 221},
        "gru": {"n_layers": 2, "width": 255},
        "mamba": {"n_layers": 6, "width": 136},
    },
    SUBWORDS: {
        "transformer": {"n_layers": 7, "width": 160, "heads": 4},
        "lstm": {"n_layers": 2, "width": 191},
        "gru": {"n_layers": 2, "width": 194},
        "mamba": {"n_layers": 12, "width": 160},
    },
}

# studies/characters/README.md says how these learning rates were chosen. The other baselines use their config's.
OPTIMIZERS = {
    "char-1m-lstm": replace(MUON, learning_rate=8e-3),
    "char-1m-gru": replace(MUON, learning_rate=8e-3),
}


def _baselines(ours: PretrainingConfig) -> list[PretrainingConfig]:
    found = []
    for kind, sizes in BASELINES[ours].items():
        name = f"{ours.name}-{kind}"
        optimizer = OPTIMIZERS.get(name, ours.optimizer)
        model = ModelConfig(kind=kind, options=sizes)  # type: ignore[arg-type]
        found.append(replace(ours, name=name, model=model, optimizer=optimizer))
    return found


# GPT-2's Transformer as nanoGPT trains it on characters on a CPU: its README's flags, 64 learned positions, random
# windows at every step.
NANOGPT = replace(
    CHARACTERS,
    name="char-1m-nanogpt",
    model=ModelConfig(
        kind="transformer", options={**BASELINES[CHARACTERS]["transformer"], "positions": CHARACTERS.batch.context}
    ),
    optimizer=OptimizerConfig(learning_rate=1e-3, betas=(0.9, 0.99)),
    schedule=ScheduleConfig(shape="cosine", warmup=0.05, final=0.1),
    batch=replace(CHARACTERS.batch, order="random"),
)

CONFIGS = {each.name: each for ours in BASELINES for each in (ours, *_baselines(ours))} | {NANOGPT.name: NANOGPT}


def find_config(name: str) -> PretrainingConfig:
    """The configuration of that name, or an error with the nearest."""
    if name not in CONFIGS:
        near = get_close_matches(name, CONFIGS, n=3, cutoff=0.4) or sorted(CONFIGS)
        raise ValueError(f"no configuration {name!r}; did you mean {', '.join(near)}? A file ends in .json or .toml")
    return CONFIGS[name]
