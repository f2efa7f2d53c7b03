"""Units that select whole levels learn a group in the standard layer, and then never err."""

import torch
from torch.nn import functional as F

from latchwork import MinMaxRNC_LM, MinMaxRNCLMConfig
from latchwork.tasks import Transformations, WordProblem


def learn(task, model, *, longest, steps):
    """Lengths from 2 on, longer whenever all answers are right; returns the length reached."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    length = 2
    for step in range(steps):
        tokens, targets = task.sample("train", step, 256 // length, length)
        logits, _ = model(tokens)
        optimizer.zero_grad()
        F.cross_entropy(logits.flatten(0, 1), targets.flatten()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if torch.equal(logits.argmax(-1), targets):
            if length == longest:
                break
            length += 1
    return length


def test_s3_is_learnt_from_a_shared_embedding_and_exact_at_length_10000():
    torch.manual_seed(0)
    task = WordProblem("S3")
    options = {"n_layers": 1, "d_model": 24, "d_state": 24, "degree": 3, "reset_form": "selection"}
    model = MinMaxRNC_LM(6, MinMaxRNCLMConfig.small(**options, conv_type="gated", conv_init_val=-6.0))
    assert learn(task, model, longest=16, steps=400) == 16
    tokens, targets = task.sample("evaluation", 0, rows=2, length=10_000)
    with torch.no_grad():
        logits, _ = model.eval()(tokens)
    assert torch.equal(logits.argmax(-1), targets)


def test_all_maps_of_three_points_are_learnt_resets_and_merges_too():
    torch.manual_seed(0)
    task = Transformations(3)
    options = {"n_layers": 1, "d_model": 24, "d_state": 24, "degree": 3, "reset_form": "transformation"}
    model = MinMaxRNC_LM(27, MinMaxRNCLMConfig.small(**options, conv_type="gated", conv_init_val=-6.0))
    assert learn(task, model, longest=16, steps=400) == 16
    tokens, targets = task.sample("evaluation", 0, rows=2, length=10_000)
    with torch.no_grad():
        logits, _ = model.eval()(tokens)
    assert torch.equal(logits.argmax(-1), targets)
