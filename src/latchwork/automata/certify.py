"""Is a trained network right on every word, of any length? A proof, a word on which it is wrong, or neither.

With `levels` the states of a network live on a finite grid, and minimum and maximum move them exactly; units that
select whole levels (`reset_form="selection"`) have finitely many states by themselves (automata/moves.py). A layer's
input at a step is then one of finitely many rows, and so are the pairs (input before, input now) that its recurrence is
driven by. So the network and the machine it shall equal are walked through together, breadth first, all words at once:
from each pair of states by each symbol, the layers one after the other. That is a product of machine and layers, exact
but for rounding. Nothing is merged or widened to boxes: a network whose product has more than max_states states is
unknown.

What it rests on. First every part of the network is compared with what its config makes: types, attributes, shapes,
hooks, patched classes, finite numbers (automata/as_made.py). What is walked through is a copy of that network, with the
weights as they were when `certify` was called. Then the network itself is run on all short words and on random longer
ones: a word on which it is wrong is returned at once, and no walk can overrule it. On the walk, each layer is run at
each input that comes up, and must be within its bounds.

Why it holds for a network as run. What differs from run to run (batch sizes, threads, chunks, fused kernels) is the
order of sums, and with it the rounding of the drives r and s before they are put on the grid, of gates and logits.
`precision` says which runs are meant. For each drive, each of finitely many, an interval is computed that holds what
any run in that precision may come to, whatever the order of its sums (automata/bounds.py); and every grid point, or
choice, that the interval touches is followed from each state that these move to different ones. So, by induction over
the steps: the states of any run at any step are among those visited there, its layers' inputs are within the radii
carried along, and its answer is the machine's, since the right logit, less its radius, exceeds every other, plus its
own. Intervals are kept apart for each entry, as if roundings were independent: more runs are covered than there are.
Not covered: bfloat16, TF32 and int8, which round more coarsely, and dropout; nor is faulty arithmetic.

Unknown comes back if: a part is not as made; the network has no levels, or parts that this knows no bounds of; a
drive's interval leads from one state to too many others, or past a whole step of the grid; there are more states, or
larger tables, than allowed; an answer is right, but rounding may lead to another; a number may overflow. `advice` then
says what to do. The bounds of float32 are wide. Where they are too wide, `precision="float64"` with a tolerance still
proves every run whose drives and logits are within that tolerance of exact; `float32_seen` then says what one float32
run of every layer at every input came to, which is evidence for float32, but no proof.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import numpy
import torch
from torch import nn

from latchwork.automata import advice, bounds
from latchwork.automata.as_made import NotAsMade, check_as_made, copy_as_made
from latchwork.automata.findings import Counterexample, Proof, Unknown
from latchwork.automata.mistakes import first_mistake
from latchwork.automata.moves import why_not
from latchwork.automata.product_walk import ProductWalk
from latchwork.machines.machine import Machine
from latchwork.machines.words import leads_to, words_to_try
from latchwork.models import MinMaxRNC_LM
from latchwork.modules.layer import MinMaxLayer
from latchwork.temporal import Formula

Array = numpy.ndarray
__all__ = ["Counterexample", "Proof", "Unknown", "certify"]
FEW_STATES = 20_000  # of a walk that looks for a shorter word than one found at random


def certify(
    model: MinMaxRNC_LM,
    machine: Machine | Formula | str,
    *,
    no_answer: int | None = None,
    precision: Literal["float32", "float64"] = "float32",
    tolerance: float = 0.0,
    max_states: int = 5_000_000,
    max_bytes: int = 1 << 30,
    watch: Callable[[int, int], None] | None = None,
) -> Proof | Counterexample | Unknown:
    """Walk network and machine through all words together.

    machine: or a formula of temporal logic, or its text, for the machine that `Machine.from_formula` makes of it.
    no_answer: the machine's output where none is asked for. precision: of the runs that a proof shall hold for.
    tolerance: how much further than by rounding in that precision a drive or logit may be off. max_states: stop beyond
    so many. max_bytes: stop where the tables of a layer's inputs and drives take more. watch: called with the states
    found and those to follow. model: as its config makes it, without dropout at work; see automata/as_made.py.
    """
    if precision not in bounds.UNITS:
        raise ValueError(f"precision must be one of {', '.join(bounds.UNITS)}; got {precision!r}")
    if not tolerance >= 0:
        raise ValueError(f"tolerance must be at least 0; got {tolerance}")
    if not max_states >= 1:
        raise ValueError(f"max_states must be at least 1; got {max_states}")
    if not max_bytes >= 1:
        raise ValueError(f"max_bytes must be at least 1; got {max_bytes}")
    if not isinstance(model, nn.Module) or not any(isinstance(each, MinMaxRNC_LM) for each in model.modules()):
        raise TypeError(f"model must be a MinMaxRNC_LM; got {type(model).__name__}")
    if isinstance(machine, (str, Formula)):
        machine = Machine.from_formula(machine)
    if not isinstance(machine, Machine):
        raise TypeError(f"machine must be a Machine or a formula; got {type(machine).__name__}")
    if no_answer is not None and (isinstance(no_answer, bool) or not isinstance(no_answer, (int, numpy.integer))):
        raise TypeError(f"no_answer must be an integer, or None; got {no_answer!r}")
    machine = replace(machine)  # checked, and a copy that nobody else has
    asked = machine.outputs != (-1 if no_answer is None else no_answer)
    live = leads_to(machine.transitions, asked)
    start = time.monotonic()
    try:
        check_as_made(model)
    except NotAsMade as error:
        return Unknown(str(error), 0, 0.0, advice=error.advice, machine=machine)
    if (reason := _not_float32(model.embedding.weight.device.type)) is not None:
        return Unknown(reason, 0, 0.0, advice=advice.ARITHMETIC, machine=machine)
    if (reason := _foreign(machine, asked, live, model.vocab_size)) is not None:
        return Unknown(reason, 0, 0.0, advice=advice.MACHINE, machine=machine)
    with torch.no_grad(), torch.device("cpu"):
        network = model if precision == "float32" else copy_as_made(model, torch.float64)
        unfit, found, doubtful = _unfit(model), None, None
        for number, words in enumerate(words_to_try(machine, live, sum(each.numel() for each in model.parameters()))):
            if (mistake := first_mistake(network, machine, asked, words)) is None:
                continue
            if (alone := first_mistake(network, machine, asked, numpy.array([mistake[0]]))) is not None:
                found = Counterexample(*alone, 0, time.monotonic() - start, machine)
                if number == 0 or unfit is not None:  # of all short words it is the shortest
                    return found
                break
            doubtful = mistake[0]  # wrong in a batch, and right by itself: the walk must not prove it
        if unfit is not None:
            return Unknown(unfit, 0, time.monotonic() - start, doubtful, advice.NETWORK, machine)
        walk = ProductWalk(network, machine, asked, live, precision=precision, tolerance=tolerance, max_bytes=max_bytes)
        result = walk.run(max_states if found is None else min(max_states, FEW_STATES), watch, start)
    if found is not None:
        return result if isinstance(result, Counterexample) and len(result.word) < len(found.word) else found
    if doubtful is not None and isinstance(result, Proof):
        what_to_do = advice.less_rounding(model.backbone.config, precision, tolerance)
        reason = "an answer depends on the batch it is in"
        return Unknown(reason, result.states, result.seconds, doubtful, what_to_do, machine)
    return result


def _unfit(model: MinMaxRNC_LM) -> str | None:
    """Why there are no bounds for a network, or None."""
    config = model.backbone.config
    first: MinMaxLayer = model.backbone.layers[0]  # type: ignore[assignment]
    if (reason := why_not(first.neuron.cells)) is not None:
        return reason
    if config.ffn_act_fn != "relu":
        return f"the network's activation is {config.ffn_act_fn}: there are bounds for relu alone"
    return None


def _foreign(machine: Machine, asked: Array, live: Array, vocabulary: int) -> str | None:
    """Why a network of this vocabulary cannot be the machine, or None."""
    if machine.n_symbols > vocabulary:
        return f"the machine has {machine.n_symbols} symbols, the network {vocabulary} tokens"
    if not live[machine.start].any():
        return "the machine asks for no answer, on any word: there is nothing to prove"
    if (most := machine.outputs[asked].max()) >= vocabulary:
        return f"the machine has an output {most}, the network {vocabulary} logits"
    return None


def _not_float32(device: str) -> str | None:
    """Why networks are not run in float32 here, or None."""
    if torch.is_autocast_enabled(device):
        return "autocast is on: networks are not run in float32"
    try:
        precision = torch.get_float32_matmul_precision()
    except RuntimeError:  # set by torch.backends, for some devices or operations alone
        precision = "mixed"
    return None if precision == "highest" else f"torch's float32 matmul precision is {precision!r}, not 'highest'"
