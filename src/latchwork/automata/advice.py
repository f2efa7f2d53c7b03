"""What to do where `certify` knows no answer."""

from __future__ import annotations

from latchwork.models import MinMaxRNCConfig

NETWORK = (
    "train a network that there are bounds for: levels=3, or units that move whole levels (reset_form='selection'), "
    "and ffn_act_fn='relu'"
)
MACHINE = "give the machine of the network's own task: its symbols and its outputs are tokens of the network"
ARITHMETIC = (
    "run in plain float32: torch.set_float32_matmul_precision('highest'), no autocast, no function of torch or of "
    "latchwork replaced; `latchwork check` tests the kernels of this machine"
)
FEW_LEVELS = 3


def more_room(config: MinMaxRNCConfig, limit: str) -> str:
    """Where there are too many states, or tables are too large. limit: the argument that allows more."""
    return f"allow more by {limit}, or make the network smaller: {_smaller(config)}"


def less_rounding(config: MinMaxRNCConfig, precision: str, tolerance: float) -> str:
    """Where the bounds of rounding are too wide."""
    if tolerance:
        first = f"take a tolerance of less than {tolerance:g}"
    elif precision == "float32":
        first = "prove it for runs in float64: precision='float64', with a small tolerance"
    else:
        first = "train on, until the right logits exceed the others by more"
    return f"{first}; or make the network smaller: {_smaller(config)}"


def _smaller(config: MinMaxRNCConfig) -> str:
    ways = ["train with a smaller d_state"]
    if not config.extra_units:
        ways.insert(0, "take units that do nothing out (latchwork.automata.prune.prune_states)")
    if config.output_gate:
        ways.append("train with output_gate=False")
    if config.n_layers > 1:
        ways.append(f"train with fewer layers than {config.n_layers}")
    if config.levels is not None and config.levels > FEW_LEVELS:
        ways.append(f"train with fewer levels than {config.levels}")
    return ", or ".join(ways)
