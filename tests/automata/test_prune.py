import pytest
import torch

from latchwork import zoo
from latchwork.automata import Machine
from latchwork.automata.certify import Proof, certify
from latchwork.automata.prune import _states, _take, freeze_moves, graft, keep_followers, prune_states
from latchwork.models import MinMaxRNC_LM, MinMaxRNCLMConfig
from latchwork.tasks import Parity, make_task
from latchwork.training import LengthCurriculum, learn_by_length


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
@pytest.mark.parametrize("form", ["free", "selection", "transformation"])
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


@pytest.mark.parametrize(("form", "degree"), [("free", 1), ("free", 3), ("selection", 3), ("transformation", 3)])
@pytest.mark.parametrize("levels", [None, 3, 4])
def test_units_that_make_layers_equal_in_number_never_move(form, degree, levels):
    torch.manual_seed(1)
    config = MinMaxRNCLMConfig.small(
        d_model=10, d_state=12, n_layers=2, degree=degree, reset_form=form, levels=levels, ffn_dropout=0.0
    )
    model = MinMaxRNC_LM(8, config).eval()
    with torch.no_grad():
        for layer in model.backbone.layers:
            layer.neuron.projection.weight.normal_()
            layer.neuron.x0.uniform_(0, 1)
        smaller = _take(model, [[0, 2], [1]])
        states = _states(smaller, torch.randint(8, (16, 9)), 1)
    assert smaller.config.backbone.d_state == 2 * degree
    assert (states[..., degree:] == states[0, 0, degree:]).all()


def test_bad_input_names_its_argument():
    model = MinMaxRNC_LM(4, MinMaxRNCLMConfig.small(d_model=8, d_state=4, n_layers=1, extra_units=((1, 2),)))
    with pytest.raises(ValueError, match="model must have units of one degree, and no extra units"):
        prune_states(model, torch.zeros(1, 2, dtype=torch.long), torch.zeros(1, 2, dtype=torch.long))
    with pytest.raises(ValueError, match="tokens and targets must share one shape"):
        prune_states(zoo.load("fflm"), torch.zeros(1, 2, dtype=torch.long), torch.zeros(1, 3, dtype=torch.long))


@torch.no_grad()
def make_followers():
    """Three units of degree 2 for the words of parity: it swaps at a 1; it shows the last letter; it never moves."""
    model = MinMaxRNC_LM(Parity().vocabulary, MinMaxRNCLMConfig.state_tracking(2, 3, d_model=8, conv_init_val=-30.0))
    sign = torch.tensor([1.0, -1.0] * 4)
    model.embedding.weight[:2] = torch.stack([-sign, sign])  # so a row of weights in its direction tells them apart
    neuron = model.backbone.layers[0].neuron
    neuron.projection.weight.zero_()
    neuron.projection.bias.zero_()
    levels, own = neuron.projection.weight[:12].view(3, 2, 2, 8), neuron.projection.weight[12:].view(3, 2, 8)
    for i in range(2):
        levels[0, i, i], levels[0, i, 1 - i] = -sign, sign  # stay at 0, swap at 1
        levels[1, i, 1], own[1, i] = sign, -sign  # all as the second at 1, begin anew at 0
    neuron.projection.bias[12 + 2 * 2 :] = 9.0  # of the third unit
    return model.eval()


def test_of_three_units_the_one_that_follows_stays_and_its_readout_can_be_learnt_and_proved():
    torch.manual_seed(0)
    task, model = Parity(), make_followers()
    words = task.sample("train", 0, 32, 40)
    smaller = keep_followers(model, *words)
    assert smaller.config.backbone.d_state == 2
    own, theirs = (each.backbone.layers[0].neuron.projection for each in (smaller, model))
    assert torch.equal(own.weight[:4], theirs.weight[:4])
    freeze_moves(smaller)
    before = {name: value.clone() for name, value in smaller.state_dict().items()}
    learning = learn_by_length(smaller, task, LengthCurriculum(shortest=8, longest=8, tokens=64, steps=500))
    assert learning.learnt
    changed = {name for name, value in smaller.state_dict().items() if not torch.equal(value, before[name])}
    layer = {name.removeprefix("backbone.layers.0.") for name in changed if "layers.0" in name}
    assert layer == {"neuron.output.weight", "neuron.output.bias"}
    assert "embedding.weight" not in changed
    assert isinstance(certify(smaller.eval(), Machine.from_task(task), no_answer=task.vocabulary), Proof)


@torch.no_grad()
def test_of_a_unit_only_the_scalars_that_follow_are_read():
    """One unit of degree 3: two places swap at a 1, the third takes what it began with at 0 and the first's at 1."""
    model = MinMaxRNC_LM(Parity().vocabulary, MinMaxRNCLMConfig.state_tracking(3, 1, d_model=8, conv_init_val=-30.0))
    sign = torch.tensor([1.0, -1.0] * 4)
    model.embedding.weight[:2] = torch.stack([-sign, sign])
    neuron = model.backbone.layers[0].neuron
    neuron.projection.weight.zero_()
    neuron.projection.bias.zero_()
    levels, own = neuron.projection.weight[:9].view(3, 3, 8), neuron.projection.weight[9:].view(3, 8)
    for i in range(2):
        levels[i, i], levels[i, 1 - i] = -sign, sign
    levels[2, 0], own[2] = sign, -sign
    smaller = keep_followers(model.eval(), *Parity().sample("train", 0, 32, 40))
    read = smaller.backbone.layers[0].neuron.output.weight.abs().amax(0) > 0
    assert read.tolist() == [True, True, False]


def test_where_no_unit_tells_the_answers_apart_there_is_no_such_network():
    model = make_followers()
    tokens, targets = Parity().sample("train", 0, 32, 40)
    with torch.no_grad():
        model.backbone.layers[0].neuron.projection.weight[:4] = 0  # the first unit
    assert keep_followers(model, tokens, targets) is None


def test_a_unit_that_follows_a_part_of_the_answer_stays_if_that_is_asked_for():
    model = make_followers()
    tokens, _ = Parity().sample("train", 0, 32, 40)
    targets = tokens.cumsum(1) % 4  # of which parity is a part
    assert keep_followers(model, tokens, targets) is None
    part = keep_followers(model, tokens, targets, partly=True)
    assert part.config.backbone.d_state == 2
    assert keep_followers(model, tokens, torch.arange(40).expand_as(tokens), partly=True) is None


@torch.no_grad()
def test_a_graft_moves_as_it_did_where_it_grew_and_changes_no_answer():
    torch.manual_seed(1)
    donor = make_followers()
    model = MinMaxRNC_LM(2, donor.config).eval()
    tokens, _ = Parity().sample("train", 0, 32, 40)
    both = graft(model, donor, tokens)
    others, _ = Parity().sample("train", 1, 16, 60)
    torch.testing.assert_close(both(others)[0], model(others)[0])
    own, old, theirs = (each.backbone.layers[0] for each in (both, model, donor))
    states = [
        layer.neuron.cells[0](layer.drive(u), layer.neuron.start())
        for layer, u in zip((own, old, theirs), (each.embedding(others) for each in (both, model, donor)), strict=True)
    ]
    assert torch.equal(states[0], torch.cat(states[1:], -1))


def test_a_graft_is_of_one_shape_of_units():
    model, tokens = make_followers(), torch.zeros(1, 2, dtype=torch.long)
    other = MinMaxRNC_LM(2, MinMaxRNCLMConfig.state_tracking(3, 2, d_model=8, conv_init_val=-30.0))
    with pytest.raises(ValueError, match="model and donor must have one layer and no extra units"):
        graft(model, other, tokens)


def test_followers_are_asked_for_in_one_layer_with_targets_of_its_tokens():
    two = MinMaxRNC_LM(8, MinMaxRNCLMConfig.small(d_model=10, d_state=6, n_layers=2))
    tokens = torch.randint(8, (4, 9))
    for wrong in (lambda: keep_followers(two, tokens, tokens), lambda: freeze_moves(two)):
        with pytest.raises(ValueError, match="model must have one layer; got 2"):
            wrong()
    with pytest.raises(ValueError, match=r"one shape \(B, T\); got \(4, 9\) and \(4, 8\)"):
        keep_followers(make_followers(), tokens, tokens[:, :8])


@pytest.mark.parametrize("changes", [{}, {"use_postlayers_ffn": True}, {"n_layers": 2}, {"output_gate": True}])
def test_the_answers_read_from_states_are_those_of_the_whole_network(changes):
    from latchwork.automata.prune import _answers, _reader

    torch.manual_seed(0)
    model = MinMaxRNC_LM(6, MinMaxRNCLMConfig.state_tracking(3, 4, **changes)).eval()
    tokens = torch.randint(0, 6, (20, 9))
    for number, layer in enumerate(model.backbone.layers):
        with torch.no_grad():
            answers, _ = _reader(model, tokens, number)
            layer.neuron.output.weight.mul_(-3)
            assert torch.equal(answers(), _answers(model, tokens))
