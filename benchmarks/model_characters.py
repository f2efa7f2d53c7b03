"""Four layers as wide as those of the character models, beside nn.LSTM of as many parameters, at 12 x 64."""

from collections.abc import Callable

import torch
from rich.table import Table
from torch import Tensor, nn

from latchwork import MinMaxRNC, MinMaxRNCConfig
from measure import Row, threads_set_to
from model_contenders import OURS, of_size, parameters
from model_products import Products, layer_maps
from model_timing import Settings, take_turns

B, T = 12, 64
LSTM = "nn.LSTM, {} layer(s)"
PRODUCTS = "torch.mm alone"


def forward_backward(model: nn.Module, u: Tensor) -> Callable[[], None]:
    leaves = list(model.parameters())

    def run() -> None:
        for each in leaves:  # as an optimizer does, which has a list of them
            each.grad = None
        model(u)[0].sum().backward()

    return run


def run(settings: Settings) -> list[Row]:
    own = MinMaxRNC(MinMaxRNCConfig(d_model=124, n_layers=4, d_state=240, ffn_act_fn="relu", ffn_dropout=0.0))
    products = Products([each for layer in own.layers for each in layer_maps(layer, B * T, B * T)])
    models = {OURS: (own, 124)}
    for layers in (1, 2):
        lstm = of_size(lambda width, n=layers: nn.LSTM(width, width, n, batch_first=True), parameters(own))
        models[LSTM.format(layers)] = lstm, lstm.hidden_size
    calls: dict[str, Callable[[], object]] = {
        name: forward_backward(model, torch.randn(B, T, width, requires_grad=True))
        for name, (model, width) in models.items()
    }
    with threads_set_to(1):
        timings = take_turns(calls | {PRODUCTS: products}, settings.seconds)
    rows = []
    for name, timing in timings.items():
        rows.append(Row(contender=name, threads=1, seconds=timing.seconds, calls=timing.calls))
        rows[-1]["of ours"] = timings[OURS].seconds / timing.seconds
        if name in models:
            rows[-1]["parameters"] = parameters(models[name][0])
        else:
            rows[-1]["GFLOP/s"] = products.flops / timing.seconds / 1e9
    return rows


def table(rows: list[Row]) -> Table:
    result = Table(title=f"Forward and backward of 4 layers, d_model 124, d_state 240, relu, at {B} x {T}, 1 thread.")
    for heading in ("contender", "parameters", "ms", "our time / its time"):
        result.add_column(heading)
    for row in rows:
        count = f"{row['parameters']:,}" if "parameters" in row else ""
        result.add_row(row["contender"], count, f"{row['seconds'] * 1e3:.1f}", f"{row['of ours']:.2f}")
    return result
