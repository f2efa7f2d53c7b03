"""Learn word problems in the standard layer, from a shared embedding; are they then exact, for ever?

python benchmarks/state_tracking.py "word_problem(S5)" --degree 5 --seeds 5
prints one line of JSON for each seed. The recipe: units that select whole levels; one learning rate; lengths from 2 on,
1.3 times longer whenever 9 of 10 answers are right; as many tokens in each batch whatever the length. Then units that
no answer needs are taken out, the rest is trained a little more, and `certify` is asked for a proof.
"""

from __future__ import annotations

import argparse
import json
import time

import torch
from torch import nn

from latchwork import MinMaxRNC_LM, MinMaxRNCConfig, MinMaxRNCLMConfig
from latchwork.automata import Machine, certify
from latchwork.automata.certify import Proof
from latchwork.automata.prune import prune_states
from latchwork.tasks import IGNORE, Task, make_task

RIGHT = 10  # batches in a row at full length without an error: then it is learnt


def learn(task: Task, model: MinMaxRNC_LM, options: argparse.Namespace, seed: int) -> dict[str, float]:
    """Train until all answers are right at the full length; what it took."""
    optimizer = torch.optim.Adam(model.parameters(), lr=options.lr)
    length, smooth, right, step, began = 2.0, 0.0, 0, 0, time.perf_counter()
    while step < options.steps and right < RIGHT and time.perf_counter() - began < options.seconds:
        step += 1
        rows = max(8, options.tokens // int(length))
        tokens, targets = task.sample("train", seed * options.steps + step, rows, int(length))
        logits, _ = model(tokens)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORE)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        accuracy = float((logits.argmax(-1) == targets)[targets != IGNORE].float().mean())
        smooth = 0.8 * smooth + 0.2 * accuracy
        right = right + 1 if length >= options.length and accuracy == 1 else 0
        if smooth > 0.9 and length < options.length:
            length, smooth = min(options.length, max(length + 1, 1.3 * length)), 0.0
        if options.verbose and step % 50 == 0:
            print(step, int(length), round(smooth, 3), round(loss.item(), 4), flush=True)
    seconds = round(time.perf_counter() - began, 1)
    return {"steps": step, "seconds": seconds, "length": int(length), "learnt": right >= RIGHT}


@torch.no_grad()
def count_errors(task: Task, model: MinMaxRNC_LM, length: int, rows: int = 1) -> int:
    """Wrong answers in one new word of that length."""
    model.eval()
    errors, state = 0, None
    for tokens, targets in task.stream("evaluation", 1, rows, length, chunk=8192):
        logits, state = model(tokens, state)
        errors += int((logits.argmax(-1) != targets)[targets != IGNORE].sum())
    return errors


def prove(task: Task, model: MinMaxRNC_LM, options: argparse.Namespace, seed: int) -> dict[str, object]:
    """Without its idle units, and after some more training: is the network right on all words?"""
    began = time.perf_counter()
    model.eval()
    tokens, targets = task.sample("train", seed + 1_000_000, 64, options.length)
    smaller = prune_states(model, tokens, targets)
    optimizer, right = torch.optim.Adam(smaller.parameters(), lr=options.lr / 2), 0
    for step in range(options.tune):
        tokens, targets = task.sample("train", seed + 2_000_000 + step, max(8, options.tokens // 32), 32)
        logits, _ = smaller(tokens)
        optimizer.zero_grad()
        nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORE).backward()
        nn.utils.clip_grad_norm_(smaller.parameters(), 1.0)
        optimizer.step()
        wrong = (logits.argmax(-1) != targets)[targets != IGNORE].any()
        right = 0 if wrong else right + 1
        if right >= 6 * RIGHT:
            break
    found = certify(smaller.eval(), Machine.from_task(task), no_answer=task.vocabulary)
    return {
        "units": smaller.config.resolved_backbone.d_state // options.degree,
        "proof": str(found)
        if not isinstance(found, Proof)
        else f"proved: {found.states} states, margin {found.margin:.2f}",
        "proof_seconds": round(time.perf_counter() - began, 1),
    }


def make_model(task: Task, options: argparse.Namespace) -> MinMaxRNC_LM:
    """One standard layer whose units select."""
    backbone = MinMaxRNCConfig(
        d_model=options.d_model,
        n_layers=options.layers,
        d_state=options.units * options.degree,
        degree=options.degree,
        reset_form=options.form,
        conv_type=options.conv,
        conv_init_val=options.conv_init_val,
        output_gate=options.gate,
        ffn_dropout=0.0,
        train_init=options.train_init,
    )
    model = MinMaxRNC_LM(task.vocabulary, MinMaxRNCLMConfig(backbone=backbone, tie_weights=options.tie))
    if options.embedding:
        nn.init.normal_(model.embedding.weight, std=options.embedding)
    return model


def main() -> None:
    """Read the options, run every seed, print JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="+", help='as "word_problem(S5)"')
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--units", type=int, default=16)
    parser.add_argument("--degree", type=int, default=5)
    parser.add_argument("--form", default="selection")
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--d-model", type=int, default=128)
    parser.add_argument("--conv", default="gated")
    parser.add_argument("--conv-init-val", type=float, default=-6.0)
    parser.add_argument("--embedding", type=float, default=1.0, help="standard deviation at the start; 0: the default")
    parser.add_argument("--gate", action="store_true")
    parser.add_argument("--tie", action="store_true")
    parser.add_argument("--train-init", action="store_true")
    parser.add_argument("--lr", type=float, default=5e-3)
    parser.add_argument("--tokens", type=int, default=1024, help="in a batch")
    parser.add_argument("--length", type=int, default=40)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--tune", type=int, default=1000, help="steps at most, after pruning")
    parser.add_argument("--long", type=int, default=1 << 20)
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    for name in options.tasks:
        for seed in range(options.first, options.first + options.seeds):
            torch.manual_seed(seed)
            task = make_task(name)
            model = make_model(task, options)
            result: dict[str, object] = {"task": name, "seed": seed, **learn(task, model, options, seed)}
            if result["learnt"]:
                result["errors"] = count_errors(task, model, options.long)
                result.update(prove(task, model, options, seed))
            print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
