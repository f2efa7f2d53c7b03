"""Units that move whole levels learn a group, or all maps, in the standard layer, and then never err."""

import pytest
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


@pytest.mark.parametrize(("task", "form"), [(WordProblem("S3"), "selection"), (Transformations(3), "transformation")])
def test_what_is_learnt_from_a_shared_embedding_is_exact_at_length_10000(task, form):
    torch.manual_seed(0)
    options = {"n_layers": 1, "d_model": 24, "d_state": 24, "degree": 3, "reset_form": form}
    config = MinMaxRNCLMConfig.small(**options, conv_type="gated", conv_init_val=-6.0)
    model = MinMaxRNC_LM(task.vocabulary, config)
    assert learn(task, model, longest=16, steps=400) == 16
    tokens, targets = task.sample("evaluation", 0, rows=2, length=10_000)
    with torch.no_grad():
        logits, _ = model.eval()(tokens)
    assert torch.equal(logits.argmax(-1), targets)
