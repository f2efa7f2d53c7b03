"""Is a trained network right on every word, of any length? A proof, a word on which it is wrong, or neither.

With `levels` the states of a network live on a finite grid, and minimum and maximum move them exactly; units that
select whole levels (`reset_form="selection"`) have finitely many states by themselves (automata/moves.py). A layer's
input at a step is then one of finitely many rows, and so are the pairs (input before, input now) that its recurrence is
driven by. So the network and the machine it shall equal are walked through together, breadth first, all words at once:
from each pair of states by each symbol, the layers one after the other. That is a product of machine and layers, exact
but for rounding. Nothing is merged or widened to boxes: a network whose product has more than max_states states is
unknown.

Why it holds for a network as run. What differs from run to run (batch sizes, threads, chunks, fused kernels) is the
order of sums, and with it the rounding of the drives r and s before they are put on the grid, of gates and logits.
`precision` says which runs are meant. For each drive, each of finitely many, an interval is computed that holds what
any run in that precision may come to, whatever the order of its sums (automata/bounds.py); and every grid point that
the interval touches is followed. So, by induction over the steps: the states of any run at any step are among those
visited there, its layers' inputs are within the radii carried along, and its answer is the machine's, since the right
logit, less its radius, exceeds every other, plus its own. Intervals are kept apart for each entry, as if roundings were
independent: more runs are covered than there are. Not covered: bfloat16, TF32 and int8, which round more coarsely, and
dropout; nor is faulty arithmetic.

Unknown comes back if: the network has no levels, or parts that this knows no bounds of; a drive's interval touches the
boundaries of too many entries at once, or more than one of a single entry; there are more states, or larger tables,
than allowed; an answer is right, but rounding may lead to another; a number may overflow. The bounds of float32 are
wide. Where they are too wide, `precision="float64"` with a tolerance still proves every run whose drives and logits are
within that tolerance of exact; `float32_seen` then says what one float32 run of every layer at every input came to,
which is evidence for float32, but no proof.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal

import torch

from latchwork.automata import bounds
from latchwork.automata.findings import Counterexample, Proof, Unknown
from latchwork.automata.machine import Machine
from latchwork.automata.moves import why_not
from latchwork.automata.product_walk import ProductWalk
from latchwork.models import MinMaxRNC_LM
from latchwork.modules.layer import MinMaxLayer

__all__ = ["Counterexample", "Proof", "Unknown", "certify"]


def certify(
    model: MinMaxRNC_LM,
    machine: Machine,
    *,
    no_answer: int | None = None,
    precision: Literal["float32", "float64"] = "float32",
    tolerance: float = 0.0,
    max_states: int = 5_000_000,
    max_bytes: int = 1 << 30,
    watch: Callable[[int, int], None] | None = None,
) -> Proof | Counterexample | Unknown:
    """Walk network and machine through all words together.

    no_answer: the machine's output where none is asked for. precision: of the runs that a proof shall hold for.
    tolerance: how much further than by rounding in that precision a drive or logit may be off. max_states: stop beyond
    so many. max_bytes: stop where the tables of a layer's inputs and drives take more. watch: called with the states
    found and those to follow.
    """
    if precision not in bounds.UNITS:
        raise ValueError(f"precision must be one of {', '.join(bounds.UNITS)}; got {precision!r}")
    if not tolerance >= 0:
        raise ValueError(f"tolerance must be at least 0; got {tolerance}")
    if max_states < 1:
        raise ValueError(f"max_states must be at least 1; got {max_states}")
    if max_bytes < 1:
        raise ValueError(f"max_bytes must be at least 1; got {max_bytes}")
    start = time.monotonic()
    reason = _unfit(model, machine, no_answer)
    if reason is not None:
        return Unknown(reason, 0, 0.0)
    walk = ProductWalk(model, machine, no_answer, precision=precision, tolerance=tolerance, max_bytes=max_bytes)
    with torch.no_grad():
        return walk.run(max_states, watch, start)


def _unfit(model: MinMaxRNC_LM, machine: Machine, no_answer: int | None) -> str | None:
    config = model.backbone.config
    first: MinMaxLayer = model.backbone.layers[0]  # type: ignore[assignment]
    if (reason := why_not(first.neuron.blocks)) is not None:
        return reason
    if config.ffn_act_fn != "relu":
        return f"the network's activation is {config.ffn_act_fn}: there are bounds for relu alone"
    if model.bigram is not None:
        return "the network has a bigram table: there are no bounds for it"
    for name, tensor in model.state_dict().items():
        if tensor.dtype != torch.float32:
            return f"the network's weights must be float32: {name} is {tensor.dtype}"
    if machine.n_symbols > model.vocab_size:
        return f"the machine has {machine.n_symbols} symbols, the network {model.vocab_size} tokens"
    outputs = machine.outputs[machine.outputs != no_answer] if no_answer is not None else machine.outputs
    if outputs.size and outputs.max() >= model.vocab_size:
        return f"the machine has an output {outputs.max()}, the network {model.vocab_size} logits"
    return None
