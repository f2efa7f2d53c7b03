import copy

import pytest
import torch
from torch.nn import functional as F

from latchwork.models import MinMaxRNC_LM, MinMaxRNCLMConfig
from latchwork.tasks import IGNORE, InductionHeads, Latching
from latchwork.training import TRAINERS, TrainingProtocol, train
from latchwork.training.network import ModelWithLoss
from latchwork.training.plans.epochs import Epochs, ends_of, groups

SHORT = TrainingProtocol(sequences=96, validation_sequences=8, epochs=2)


def make_model(vocabulary, **changes):
    torch.manual_seed(0)
    return MinMaxRNC_LM(vocabulary, MinMaxRNCLMConfig.small(**{"d_model": 8, "d_state": 4, "n_layers": 1, **changes}))


def gradients(model, pieces):
    """Those of the weighted sum of the pieces' losses, which is returned too."""
    loss = sum(ModelWithLoss(model)(piece.tokens, piece.targets)[0] * weight for piece, weight in pieces)
    loss.backward()
    return loss.detach(), [each.grad for each in model.parameters() if each.requires_grad]


@pytest.mark.parametrize("task", [Latching(3), InductionHeads(4)], ids=lambda task: task.name)
@pytest.mark.parametrize("rows", [1, 17, 64])
def test_the_groups_of_a_batch_have_the_loss_and_gradient_of_the_padded_batch(task, rows):
    model = make_model(task.vocabulary, ffn_dropout=0.0).double()
    data = task.sample("train", 0, 64)
    loss, found = gradients(model, groups(data, ends_of(data), torch.arange(rows)))
    model.zero_grad()
    tokens, targets = data.tokens[:rows], data.targets[:rows]
    expected = F.cross_entropy(model(tokens)[0].flatten(0, 1), targets.flatten(), ignore_index=IGNORE)
    expected.backward()
    assert float(loss) == pytest.approx(float(expected.detach()), rel=1e-9)
    for one, other in zip(found, [each.grad for each in model.parameters() if each.requires_grad], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-9)


def test_a_model_without_a_loss_of_its_own_has_the_same():
    model = make_model(15)
    tokens, targets = Latching(3).sample("train", 0, 4, 20)
    targets[:, ::3] = IGNORE
    plain = torch.nn.Module()
    plain.forward = model.forward
    torch.testing.assert_close(ModelWithLoss(plain)(tokens, targets)[0], ModelWithLoss(model)(tokens, targets)[0])


def test_rows_without_an_answer_change_nothing():
    data = Latching(3).sample("train", 0, 40, 20)
    data.targets[8:] = IGNORE
    model = make_model(15, ffn_dropout=0.0)
    few, many = (gradients(copy.deepcopy(model), groups(data, ends_of(data), torch.arange(n))) for n in (8, 40))
    torch.testing.assert_close(few, many)
    (piece, weight), *rest = groups(data, ends_of(data), torch.arange(8, 40))
    assert not rest
    assert ModelWithLoss(model)(piece.tokens, piece.targets)[0] * weight == 0


@pytest.mark.parametrize("world", [2, 3])
def test_all_processes_together_see_the_batches_of_one(world):
    plan = Epochs(Latching(2), TRAINERS["minmax"], 64, TrainingProtocol(sequences=70, validation_sequences=2), 0)
    for step in range(3):
        whole = [piece.tokens.tolist() for piece, _ in plan.batches(step, 0, 1)]
        shares = [plan.batches(step, rank, world) for rank in range(world)]
        assert len({len(each) for each in shares}) == 1  # no process waits for another in vain
        seen = [piece.tokens.tolist() for each in shares for piece, weight in each if weight]
        assert sorted(seen) == sorted(whole)
        assert sum(weight for each in shares for _, weight in each) == pytest.approx(1)


def test_training_lowers_the_loss_and_returns_the_best_weights_as_a_copy():
    task = Latching(2)
    model = make_model(task.vocabulary, d_model=16, d_state=8)
    weights = {}

    def watch(progress):
        weights[progress.step] = copy.deepcopy(model.state_dict())

    protocol = TrainingProtocol(sequences=192, validation_sequences=16, epochs=4)
    place = train(model, task, trainer=TRAINERS["minmax_bs8"], batch_size=8, protocol=protocol, seed=0, watch=watch)
    losses = [each["loss"] for each in place.epochs]
    assert losses[-1] < losses[0]
    accuracies = [each["validation_accuracy"] for each in place.epochs]
    assert place.best_accuracy == max(accuracies)
    assert place.best_epoch == accuracies.index(max(accuracies))
    best = weights[24 * (place.best_epoch + 1)]
    assert all(torch.equal(value, best[name]) for name, value in model.state_dict().items())


def test_a_loss_that_is_not_a_number_stops_and_keeps_the_weights():
    model = make_model(10)
    torch.nn.init.constant_(model.backbone.layers[0].neuron.projection.weight, float("nan"))
    place = train(model, Latching(2), trainer=TRAINERS["minmax"], batch_size=64, protocol=SHORT, seed=0)
    assert place.stopped == "diverged"


def test_time_that_is_up_stops():
    place = train(
        make_model(10), Latching(2), trainer=TRAINERS["minmax"], batch_size=8, protocol=SHORT, seed=0, seconds_left=0.0
    )
    assert place.stopped == "time limit"
    assert len(place.epochs) == 1  # what there is has been validated


def epochs(losses, accuracy=0.5):
    return [{"validation_loss": loss, "validation_accuracy": accuracy} for loss in losses]


def test_early_stopping_waits_for_five_windows_without_improvement():
    protocol = TrainingProtocol()
    assert protocol.why_stop(epochs([1.0] * 7)) == ""  # five windows: one best, four after it
    assert protocol.why_stop(epochs([1.0] * 8)) == "no improvement"
    assert protocol.why_stop(epochs([1.0 - 0.1 * i for i in range(20)])) == ""
    assert protocol.why_stop(epochs([1.0 - 1e-6 * i for i in range(8)])) == "no improvement"
    assert protocol.why_stop(epochs([1.0] * 7 + [0.5])) == ""
    assert protocol.why_stop(epochs([1.0 - 0.01 * i for i in range(30)])) == "all epochs"


def test_perfect_epochs_in_a_row_stop_only_where_asked():
    assert TrainingProtocol().why_stop(epochs([1.0] * 2, 1.0)) == ""
    two = TrainingProtocol(perfect=2)
    assert two.why_stop(epochs([1.0], 1.0)) == ""
    assert two.why_stop(epochs([1.0] * 2, 1.0)) == "perfect"
    assert two.why_stop(epochs([1.0], 1.0) + epochs([1.0], 0.999) + epochs([1.0], 1.0)) == ""


class Dropping(torch.nn.Module):
    """Right in training mode alone, where its dropout tells it so."""

    def __init__(self, task):
        super().__init__()
        self.task, self.dropout, self.weight = task, torch.nn.Dropout(0.5), torch.nn.Parameter(torch.ones(()))

    def forward(self, tokens, state=None):
        answers = torch.tensor([self.task.oracle(row) for row in tokens.tolist()]).clamp(0)
        logits = F.one_hot((answers + (not self.training)) % self.task.vocabulary, self.task.vocabulary)
        return 9 * self.weight * logits.float(), None


def test_a_network_that_is_right_only_with_dropout_on_is_warned_of():
    protocol = TrainingProtocol(sequences=8, validation_sequences=2, epochs=1)
    with pytest.warns(RuntimeWarning, match="it reads dropout as a signal"):
        found = train(
            Dropping(Latching(2)), Latching(2), trainer=TRAINERS["minmax"], batch_size=8, protocol=protocol, seed=0
        )
    assert found.mode_gap["training"] == 1
    assert found.mode_gap["evaluation"] < 0.9
