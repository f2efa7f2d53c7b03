import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from latchwork.evaluation.accuracy import measure
from latchwork.evaluation.statistics import by_sequence
from latchwork.evaluation.streaming import evaluate
from latchwork.models import MinMaxRNC_LM, MinMaxRNCLMConfig
from latchwork.tasks import IGNORE, Batch, InductionHeads, Latching, Sequences, Split
from latchwork.training.plans.epochs import ends_of


def make_model(vocabulary):
    torch.manual_seed(0)
    return MinMaxRNC_LM(vocabulary, MinMaxRNCLMConfig.small(d_model=8, d_state=4, n_layers=1))


def by_definition(model, batch):
    """Every row alone, up to its last answer, in one piece."""
    loss, correct, asked = 0.0, 0, 0
    for tokens, targets in zip(*batch, strict=True):
        kept = targets != IGNORE
        if not kept.any():
            continue
        logits = model(tokens[None])[0][0][kept]
        loss += float(F.cross_entropy(logits, targets[kept], reduction="sum"))
        correct += int((logits.argmax(-1) == targets[kept]).sum())
        asked += int(kept.sum())
    return loss / max(1, asked), correct, asked


@pytest.mark.parametrize("task", [Latching(3), Sequences(2), InductionHeads(4)], ids=lambda task: task.name)
@pytest.mark.parametrize(("rows", "length"), [(1, 3), (35, None), (3, 1100), (33, 17)])
def test_measure_equals_the_definition(task, rows, length):
    model = make_model(task.vocabulary).eval()
    batch = task.sample("train", 0, rows, length)
    with torch.no_grad():
        loss, correct, asked = by_definition(model, batch)
    for lengths in (None, ends_of(batch)):
        found = measure(model, batch, lengths)
        assert found.asked == asked
        assert abs(found.correct - correct) <= 1  # a tie of logits may fall the other way
        assert found.loss == pytest.approx(loss, rel=1e-4)


def test_measure_leaves_the_models_mode_and_takes_no_rows():
    model = make_model(10)
    for mode in (True, False):
        model.train(mode)
        assert measure(model, Latching(2).sample("train", 0, 0)).accuracy == 0
        assert model.training is mode


class Teller(nn.Module):
    """Says what it is told to, from a table of answers by step; its state counts the steps."""

    def __init__(self, answers, vocabulary):
        super().__init__()
        self.answers, self.vocabulary = answers, vocabulary
        self.nothing = nn.Parameter(torch.zeros(()))

    def forward(self, tokens, state=None):
        step = state or 0
        said = self.answers[: len(tokens), step : step + tokens.shape[1]]
        return F.one_hot(said, self.vocabulary).float(), step + tokens.shape[1]


@given(st.integers(1, 40), st.integers(1, 5), st.integers(1, 50), st.integers(0, 3))
def test_evaluate_counts_what_is_right(length, rows, chunk, seed):
    task = Sequences(2, "balanced")
    task.splits = {**task.splits, "evaluation": Split(sequences=4, shortest=length, longest=length)}
    batch = task.sample("evaluation", seed * 10_007, rows, length)
    answers = batch.targets.clone()
    wrong = torch.rand(answers.shape, generator=torch.Generator().manual_seed(seed)) < 0.3
    answers[wrong] = 0  # never an answer
    found = evaluate(Teller(answers, task.vocabulary), task, seed=seed, sequences=rows, length=length, chunk=chunk)
    right = ~wrong
    assert found["average"] == pytest.approx(float(right.double().mean()))
    assert found["minimum"] == pytest.approx(float(right.double().mean(0).min()))
    assert found["constant"] == pytest.approx(float(torch.bincount(batch.targets.flatten()).max() / answers.numel()))
    changed = torch.zeros_like(right)
    changed[:, 1:] = batch.targets[:, 1:] != batch.targets[:, :-1]
    assert found["changes"] == int(changed.sum())
    assert found["change"] == (pytest.approx(float(right[changed].double().mean())) if changed.any() else None)
    assert found["positions"][0][0] == 0
    assert found["positions"][-1][1] == length
    assert sum(each[2] for each in found["positions"]) == answers.numel()
    assert sum(each[3] for each in found["positions"]) == int(right.sum())
    assert found["answers"] == torch.bincount(batch.targets.flatten(), minlength=task.vocabulary).tolist()
    assert found["by_sequence"] == by_sequence([length] * rows, right.sum(1).tolist())


def test_logits_with_a_nan_are_no_answer():
    task = Latching(2)
    model = make_model(task.vocabulary)
    with torch.no_grad():
        model.embedding.weight.fill_(torch.nan)
    assert evaluate(model, task, seed=0, sequences=8, length=20)["average"] == 0
    batch = task.sample("train", 0, 8, 20)
    assert 0 in batch.targets  # what argmax says of NaN
    assert measure(model, batch).correct == 0


def test_evaluate_goes_on_from_the_state_and_through_all_rows():
    task = InductionHeads(4)
    model = make_model(task.vocabulary).eval()
    whole = evaluate(model, task, seed=1, sequences=7, length=700, rows=7, chunk=700)
    cut = evaluate(model, task, seed=1, sequences=7, length=700, rows=7, chunk=33)
    assert {**whole, "average": 0} == {**cut, "average": 0}
    assert whole["average"] == cut["average"]
    assert whole["positions"][0][:3] == [whole["positions"][0][0], 700, 7]
    assert evaluate(model, task, seed=1, sequences=7, length=700, rows=2)["sequences"] == 7


def test_progress_ends_at_all_steps():
    seen = []
    task = Latching(2)
    evaluate(
        make_model(10),
        task,
        seed=0,
        sequences=5,
        length=100,
        rows=2,
        chunk=30,
        watch=lambda done, steps: seen.append((done, steps)),
    )
    assert seen[-1] == (500, 500)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_a_batch_without_answers_has_no_accuracy():
    model = make_model(10)
    nothing = Batch(torch.zeros(2, 5, dtype=torch.long), torch.full((2, 5), IGNORE))
    assert measure(model, nothing) == (0.0, 0, 0)
