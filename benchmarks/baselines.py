"""A training step of the small configurations, all models in turns on one thread: tokens a second, as a share of ours.

python benchmarks/baselines.py [NAME ...] [--rounds 9] [--batch 16] [--steps 512] [--backend torch] [--profile NAME]
Streaming is one chunk of an evaluation, and with --stream LENGTH the whole of one sequence of that length.
With --write, and all models, the figures go into benchmarks/results/baselines.json.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from torch import nn

from latchwork import MinMaxRNC_LM, MinMaxRNCLMConfig
from latchwork.baselines import make_baseline
from latchwork.ops.dispatch import NAMES, use_backend
from latchwork.training.network import ModelWithLoss
from machine import describe

OUT = Path(__file__).parent / "results" / "baselines.json"
VOCABULARY = 20
OURS = "minmax-s"
MODELS = ("mamba-s", "slstm-s", "mlstm-s", "xlstm-l-s", "lstm-s", "gru-s", "transformer-s")


GOALS = {"mamba-s": 40, "slstm-s": 50, "mlstm-s": 30, "xlstm-l-s": 35, "gru-s": 40}  # where ours has 98


def make(name: str) -> nn.Module:
    torch.manual_seed(0)
    return MinMaxRNC_LM(VOCABULARY, MinMaxRNCLMConfig.small()) if name == OURS else make_baseline(name, VOCABULARY)


def training_step(model: nn.Module, B: int, T: int) -> Callable[[], None]:
    """Forward, mean cross-entropy, backward, Adam, as `latchwork run` has them."""
    tokens, targets = torch.randint(VOCABULARY, (2, B, T), generator=torch.Generator().manual_seed(0))
    network, optimizer = ModelWithLoss(model).train(), torch.optim.Adam(model.parameters())

    def step() -> None:
        optimizer.zero_grad()
        network(tokens, targets)[0].backward()
        optimizer.step()

    return step


def evaluation_chunk(model: nn.Module, B: int, T: int) -> Callable[[], None]:
    """One chunk of streaming evaluation: a state goes in, logits and a state come out."""
    tokens = torch.randint(VOCABULARY, (B, T), generator=torch.Generator().manual_seed(0))
    model.eval()
    with torch.no_grad():
        state = model(tokens)[1]

    def chunk() -> None:
        with torch.no_grad():
            model(tokens, state)

    return chunk


def whole_stream(model: nn.Module, length: int, chunk: int) -> Callable[[], None]:
    """Evaluation of one sequence, chunk by chunk."""
    tokens = torch.randint(VOCABULARY, (1, length), generator=torch.Generator().manual_seed(0))
    model.eval()

    def stream() -> None:
        with torch.no_grad():
            for _ in model.stream(tokens, chunk_size=chunk):
                pass

    return stream


def take_turns(calls: dict[str, Callable[[], None]], rounds: int) -> dict[str, float]:
    """The median processor time of each call: on one thread it is what the call takes where no one else runs."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for round_ in range(rounds + 2):  # the first two warm up
        for name, call in calls.items():
            start = time.process_time()
            call()
            if round_ > 1:
                times[name].append(time.process_time() - start)
    return {name: statistics.median(each) for name, each in times.items()}


def profile(step: Callable[[], None]) -> None:
    step()
    with torch.profiler.profile() as found:
        for _ in range(3):
            step()
    print(found.key_averages().table(sort_by="self_cpu_time_total", row_limit=30, max_name_column_width=50))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=list(MODELS), help="of baselines; default: all")
    parser.add_argument("--rounds", type=int, default=9, help="in each round every model has one call")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--steps", type=int, default=512)
    parser.add_argument("--stream", type=int, default=1 << 16, help="tokens of the sequence that is evaluated")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--backend", choices=NAMES, default="auto", help="torch: the definitions, without the kernels")
    parser.add_argument("--profile", metavar="NAME", help="where the time of one model goes, instead")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with use_backend(options.backend):
        if options.profile:
            return profile(training_step(make(options.profile), options.batch, options.steps))
        columns, models, B, T = {}, {}, options.batch, options.steps
        kinds: dict[str, tuple[int, int, Callable[[nn.Module], Callable[[], None]]]] = {
            "training": (B * T, options.rounds, lambda model: training_step(model, B, T)),
            "streaming": (B * T, options.rounds, lambda model: evaluation_chunk(model, B, T)),
            "one sequence": (options.stream, 3, lambda model: whole_stream(model, options.stream, 4096)),
        }
        for what, (tokens, rounds, made) in kinds.items():
            models = {name: make(name) for name in (OURS, *options.names)}
            seconds = take_turns({name: made(model) for name, model in models.items()}, rounds)
            columns[what] = {name: tokens / each for name, each in seconds.items()}
    if options.write:
        machine = describe(1, ("transformers", "xlstm", "mlstm_kernels"))
        how = {"batch": B, "steps": T, "sequence": options.stream, "backend": options.backend}
        OUT.write_text(json.dumps({"machine": machine, **how, "tokens_per_second": columns}, indent=1) + "\n")
    table = Table("model", "parameters", title=f"one thread, B {B}, T {T}", box=SIMPLE)
    for what in columns:
        table.add_column(f"{what}, tokens/s", justify="right")
        table.add_column("of ours", justify="right")
    for name, model in models.items():
        cells = []
        for speeds in columns.values():
            cells += [f"{speeds[name]:,.0f}", f"{speeds[name] / speeds[OURS]:.2f}"]
        table.add_row(name, f"{sum(each.numel() for each in model.parameters()):,}", *cells)
    Console().print(table)


if __name__ == "__main__":
    main()
