import copy

import pytest
import torch
from torch.nn import functional as F

from latchwork.baselines import make_baseline
from latchwork.models import MinMaxRNC_LM, MinMaxRNCLMConfig
from latchwork.tasks import IGNORE, InductionHeads, Latching
from latchwork.training import TRAINERS, RunFolder, TrainingProtocol, train
from latchwork.training.loop import _ends, _step, mean_loss, why_stop

SHORT = TrainingProtocol(sequences=96, validation_sequences=8, epochs=2)


def make_model(vocabulary, **changes):
    torch.manual_seed(0)
    return MinMaxRNC_LM(vocabulary, MinMaxRNCLMConfig.small(**{"d_model": 8, "d_state": 4, "n_layers": 1, **changes}))


@pytest.mark.parametrize("task", [Latching(3), InductionHeads(4)], ids=lambda task: task.name)
@pytest.mark.parametrize("rows", [1, 17, 64])
def test_a_step_over_groups_of_like_length_is_the_step_over_the_padded_batch(task, rows):
    model = make_model(task.vocabulary, ffn_dropout=0.0).double()
    other = copy.deepcopy(model)
    data = task.sample("train", 0, 64)
    optimizer = TRAINERS["minmax"].make_optimizer(model.parameters())
    loss, asked = _step(model, optimizer, TRAINERS["minmax"], 1e-3, data, _ends(data), torch.arange(rows))
    tokens, targets = data.tokens[:rows], data.targets[:rows]
    expected = F.cross_entropy(other(tokens)[0].flatten(0, 1), targets.flatten(), ignore_index=IGNORE)
    expected.backward()
    assert asked == int((targets != IGNORE).sum())
    assert loss / asked == pytest.approx(float(expected.detach()), rel=1e-9)
    for found, wanted in zip(model.parameters(), other.parameters(), strict=True):
        if found.requires_grad:
            torch.testing.assert_close(found.grad, wanted.grad, rtol=1e-6, atol=1e-9)


def test_a_model_without_a_loss_of_its_own_has_the_same():
    model = make_model(15)
    tokens, targets = Latching(3).sample("train", 0, 4, 20)
    targets[:, ::3] = IGNORE
    plain = torch.nn.Module()
    plain.forward = model.forward
    torch.testing.assert_close(mean_loss(plain, tokens, targets), mean_loss(model, tokens, targets))


def test_rows_without_an_answer_change_nothing():
    task = Latching(3)
    model = make_model(task.vocabulary, ffn_dropout=0.0)
    other = copy.deepcopy(model)
    data = task.sample("train", 0, 40, 20)
    data.targets[8:] = IGNORE
    results = []
    for each, rows in ((model, 40), (other, 8)):
        optimizer = TRAINERS["minmax"].make_optimizer(each.parameters())
        results.append(_step(each, optimizer, TRAINERS["minmax"], 1e-3, data, _ends(data), torch.arange(rows)))
    assert results[0] == pytest.approx(results[1])
    for found, wanted in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(found, wanted)
    plain = torch.nn.Module()
    plain.forward = model.forward
    for each in (model, plain):
        assert mean_loss(each, data.tokens[8:], data.targets[8:]) == 0


def test_training_lowers_the_loss_and_returns_the_best_weights_as_a_copy():
    task = Latching(2)
    model = make_model(task.vocabulary, d_model=16, d_state=8)
    weights = {}

    def watch(progress):
        weights[progress.epoch, progress.batch] = copy.deepcopy(model.state_dict())

    protocol = TrainingProtocol(sequences=192, validation_sequences=16, epochs=4)
    place = train(model, task, trainer=TRAINERS["minmax_bs8"], batch_size=8, protocol=protocol, seed=0, watch=watch)
    losses = [each["loss"] for each in place.epochs]
    assert losses[-1] < losses[0]
    accuracies = [each["validation_accuracy"] for each in place.epochs]
    assert place.best_accuracy == max(accuracies)
    assert place.best_epoch == accuracies.index(max(accuracies))
    best = weights[place.best_epoch, 24]
    assert all(torch.equal(value, best[name]) for name, value in model.state_dict().items())


def test_a_baseline_trains_too():
    place = train(
        make_baseline("gru-s", 10),
        Latching(2),
        trainer=TRAINERS["xlstm"],
        batch_size=64,
        protocol=TrainingProtocol(sequences=64, validation_sequences=2, epochs=1),
        seed=0,
    )
    assert place.stopped == "all epochs"


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
    assert why_stop(epochs([1.0] * 7), protocol) == ""  # five windows: one best, four after it
    assert why_stop(epochs([1.0] * 8), protocol) == "no improvement"
    assert why_stop(epochs([1.0 - 0.1 * i for i in range(20)]), protocol) == ""
    assert why_stop(epochs([1.0 - 1e-6 * i for i in range(8)]), protocol) == "no improvement"
    assert why_stop(epochs([1.0] * 7 + [0.5]), protocol) == ""
    assert why_stop(epochs([1.0 - 0.01 * i for i in range(30)]), protocol) == "all epochs"


def test_perfect_epochs_in_a_row_stop_only_where_asked():
    assert why_stop(epochs([1.0] * 2, 1.0), TrainingProtocol()) == ""
    two = TrainingProtocol(perfect=2)
    assert why_stop(epochs([1.0], 1.0), two) == ""
    assert why_stop(epochs([1.0] * 2, 1.0), two) == "perfect"
    assert why_stop(epochs([1.0], 1.0) + epochs([1.0], 0.999) + epochs([1.0], 1.0), two) == ""


def test_a_checkpoint_without_metrics_and_metrics_without_a_checkpoint(tmp_path):
    folder = RunFolder(tmp_path)
    folder.metrics.write_text('{"step": 1}\n')
    assert folder.load() is None
    assert not folder.metrics.exists()  # nothing stands for it: it comes again
    folder.save({"a": torch.ones(2)}, {"epoch": 3})
    tensors, place = RunFolder(tmp_path).load()
    assert torch.equal(tensors["a"], torch.ones(2))
    assert place == {"epoch": 3}
