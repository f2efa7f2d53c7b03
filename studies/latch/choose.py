"""Choose the defaults of Latch: variants of its layer on the sets of CHOSEN_ON, one seed, 8 s a run.

The recorded choice was made with periods up to 1024 ("periods to 1024" is that layer with no other change), adding in
batches of 32, and recall with two variants only: 10 s and all 128 test sequences for periods to 1024, 8 s and the first
32 test sequences for periods to 128.

`nice -n 19 python studies/latch/choose.py` writes results/latch/choice.json, which report.py prints.
"""

from __future__ import annotations

from typing import Any

import torch
from latch_problems import CHOSEN_ON
from run import RESULTS, run

from latchwork.files import write_json
from latchwork.modules import BasicConv, GatedConv, GatedFeedForward, MinMaxLayer, MinMaxNeuron, latch

SECONDS = 8.0
VARIANTS: dict[str, dict[str, Any] | None] = {
    "nn.LSTM": None,
    "periods to 128": {},
    "basic convolution": {"conv": BasicConv},
    "swish": {"act_fn": "swish"},
    "feed-forward 0.5": {"proj_factor": 0.5},
    "basic, 0.5": {"conv": BasicConv, "proj_factor": 0.5},
    "no output gate": {"output_gate": False},
    "rmsnorm": {"norm_type": "rmsnorm"},
    "small_init": {"s_r_init": "small_init"},
}


def vary(
    conv: Any = GatedConv,
    act_fn: str = "relu",
    proj_factor: float = 1.3,
    output_gate: bool = True,
    norm_type: str = "layernorm",
    s_r_init: str = "spread",
) -> type[latch.LatchLayer]:
    """A LatchLayer with other parts."""

    class Varied(latch.LatchLayer):
        def __init__(self, input_size: int | None, hidden_size: int, state_size: int, **options: Any) -> None:
            super().__init__(input_size, hidden_size, state_size, **options)
            n_layers = options["n_layers"]
            ffn = GatedFeedForward(hidden_size, dropout=0.0, n_layers=n_layers, act_fn=act_fn, proj_factor=proj_factor)
            neuron = MinMaxNeuron(
                hidden_size, state_size, s_r_init=s_r_init, n_layers=n_layers, output_gate=output_gate
            )
            self.layer = MinMaxLayer(conv=conv(hidden_size), ffn=ffn, neuron=neuron, norm_type=norm_type)

    return Varied


def main() -> None:
    """Every variant on every set."""
    torch.set_num_threads(1)
    usual, found = latch.LatchLayer, []
    for name in CHOSEN_ON:
        for variant, options in VARIANTS.items():
            latch.LatchLayer = usual if options is None else vary(**options)  # type: ignore[misc]
            record = run(name, "lstm" if options is None else "latch", 0, SECONDS)
            found.append({"variant": variant, **record})
            print(variant, record, flush=True)
    write_json(RESULTS / "choice.json", {"runs": found})


if __name__ == "__main__":
    main()
