import pytest
import torch

from latchwork import zoo
from latchwork.automata import Machine
from latchwork.automata.certify import Proof, certify
from latchwork.automata.prune import prune_states
from latchwork.models import MinMaxRNC_LM, MinMaxRNCLMConfig
from latchwork.tasks import make_task


@pytest.mark.parametrize("name", ["latching-4", "fflm", "sequences-2"])
def test_a_pruned_network_is_smaller_and_right_where_it_was(name):
    task, model = make_task(zoo.proof(name)["task"]), zoo.load(name)
    tokens, targets = task.sample("train", 0, 16, 40)
    pruned = prune_states(model, tokens, targets)
    assert pruned.config.backbone.d_state < model.config.backbone.d_state
    with torch.no_grad():
        assert torch.equal(pruned(tokens)[0].argmax(-1)[targets >= 0], targets[targets >= 0])
    assert torch.equal(model.state_dict()["embedding.weight"], zoo.load(name).state_dict()["embedding.weight"])


def test_a_pruned_network_can_be_proved_in_fewer_states():
    task, model = make_task("latching(4)"), zoo.load("latching-4")
    machine = Machine.from_task(task)
    before = certify(model, machine, no_answer=task.vocabulary)
    after = certify(prune_states(model, *task.sample("train", 0, 64, 60)), machine, no_answer=task.vocabulary)
    assert isinstance(after, Proof)
    assert after.states < before.states


@pytest.mark.parametrize("gate", [True, False])
def test_an_untrained_network_keeps_the_answers_that_were_right(gate):
    torch.manual_seed(0)
    config = MinMaxRNCLMConfig.small(d_model=10, d_state=6, n_layers=2, output_gate=gate)
    model = MinMaxRNC_LM(8, config).eval()
    tokens, targets = torch.randint(8, (4, 9)), torch.randint(8, (4, 9))
    with torch.no_grad():
        right = model(tokens)[0].argmax(-1) == targets
        assert ((prune_states(model, tokens, targets)(tokens)[0].argmax(-1) == targets) >= right).all()


@pytest.mark.parametrize("gate", [True, False])
@pytest.mark.parametrize("form", ["free", "selection", "permutation", "transformation"])
def test_units_that_nothing_reads_are_taken_out_and_the_logits_stay(form, gate):
    torch.manual_seed(3)
    config = MinMaxRNCLMConfig.small(
        d_model=10, d_state=12, n_layers=2, degree=3, reset_form=form, output_gate=gate, ffn_dropout=0.0
    )
    model = MinMaxRNC_LM(8, config).eval()
    tokens = torch.randint(8, (16, 9))
    with torch.no_grad():
        for layer in model.backbone.layers:
            layer.neuron.output.weight.normal_()[:, 3:9] = 0  # of four units two
        logits, _ = model(tokens)
        smaller = prune_states(model, tokens, logits.argmax(-1))
        assert smaller.config.backbone.d_state <= 6
        if smaller.config.backbone.d_state == 6:
            torch.testing.assert_close(smaller(tokens)[0], logits, atol=1e-5, rtol=1e-5)
        assert torch.equal(smaller(tokens)[0].argmax(-1), logits.argmax(-1))


def test_bad_input_names_its_argument():
    model = MinMaxRNC_LM(4, MinMaxRNCLMConfig.small(d_model=8, d_state=4, n_layers=1, groups=((1, 2),)))
    with pytest.raises(ValueError, match="model must have units of one degree, and no groups"):
        prune_states(model, torch.zeros(1, 2, dtype=torch.long), torch.zeros(1, 2, dtype=torch.long))
    with pytest.raises(ValueError, match="tokens and targets must share one shape"):
        prune_states(zoo.load("fflm"), torch.zeros(1, 2, dtype=torch.long), torch.zeros(1, 3, dtype=torch.long))
