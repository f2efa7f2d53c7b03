"""What int8 weights cost: the error of the logits, and the perplexity of a small model trained on a text."""

import math
from pathlib import Path

import torch
from rich.table import Table
from torch import Tensor, nn
from torch.nn import functional as F

from latchwork import MinMaxRNC_LM, MinMaxRNCConfig, MinMaxRNCLMConfig
from measure import Row, progress
from model_timing import Settings
from model_training import random_batch

VOCABULARY = 50257
STEPS, B, T = 400, 32, 128
PIECE = 2048
HELD_OUT = 0.1  # of the text, its end
CHARACTERS = MinMaxRNCConfig(d_model=128, n_layers=4, d_state=160, ffn_act_fn="swish")


def run(settings: Settings) -> list[Row]:
    try:
        from latchwork.models.int8 import quantize_int8
    except ImportError as reason:
        return [Row(figure=each, note=f"not measured: {reason}") for each in ("logits", "perplexity")]
    rows = logit_errors(quantize_int8)
    if settings.text is None:
        return [*rows, Row(figure="perplexity", note="skipped: no --text to train on")]
    return rows + perplexities(settings.text, quantize_int8)


@torch.no_grad()
def logit_errors(quantize_int8) -> list[Row]:
    """Of the large preset as initialised, on random tokens."""
    progress("int8: logits of the large preset")
    torch.manual_seed(0)
    model = MinMaxRNC_LM(VOCABULARY, MinMaxRNCLMConfig.large()).eval()
    tokens, _ = random_batch(VOCABULARY, 2, 128)
    exact, _ = model(tokens)
    rounded, _ = quantize_int8(model)(tokens)
    error, spread = (rounded - exact).abs(), float(exact.std())
    return [
        Row(figure="largest logit error / standard deviation of the logits", value=float(error.max()) / spread),
        Row(figure="mean logit error / standard deviation of the logits", value=float(error.mean()) / spread),
    ]


def perplexities(path: Path, quantize_int8) -> list[Row]:
    text = path.read_text()
    alphabet = {letter: number for number, letter in enumerate(sorted(set(text)))}
    data = torch.tensor([alphabet[letter] for letter in text])
    cut = int(len(data) * (1 - HELD_OUT))
    model = train(data[:cut], len(alphabet)).eval()
    exact, rounded = (perplexity(each, data[cut:]) for each in (model, quantize_int8(model)))
    return [
        Row(figure=f"held-out perplexity of {path.name} after {STEPS} steps, float32", value=exact),
        Row(figure=f"held-out perplexity of {path.name} after {STEPS} steps, int8", value=rounded),
        Row(figure="ratio of the perplexities", value=rounded / exact),
    ]


def train(data: Tensor, vocab_size: int) -> MinMaxRNC_LM:
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    model = MinMaxRNC_LM(vocab_size, MinMaxRNCLMConfig(backbone=CHARACTERS)).train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(STEPS):
        starts = torch.randint(len(data) - T, (B, 1), generator=generator)
        window = data[starts + torch.arange(T + 1)]
        optimiser.zero_grad()
        loss, _ = model.loss(window[:, :-1], window[:, 1:])
        loss.backward()
        optimiser.step()
        if step % 50 == 0 or step == STEPS - 1:
            progress(f"int8: step {step}, loss {loss.item():.3f}")
    return model


@torch.no_grad()
def perplexity(model: nn.Module, data: Tensor) -> float:
    """Of the whole text as one sequence, in pieces."""
    total, state = 0.0, None
    for start in range(0, len(data) - 1, PIECE):
        piece = data[start : start + PIECE + 1]
        logits, state = model(piece[None, :-1], state)
        total += float(F.cross_entropy(logits[0], piece[1:], reduction="sum"))
    return math.exp(total / (len(data) - 1))


def table(rows: list[Row]) -> Table:
    result = Table(title="int8 weights against float32. Logits: large preset as initialised, random tokens.")
    result.add_column("figure")
    result.add_column("value", justify="right")
    result.add_column("notes")
    for row in rows:
        result.add_row(row["figure"], f"{row['value']:.6g}" if "value" in row else "-", row.get("note", ""))
    return result
