"""No network that was tampered with is proved: it is Unknown, or a word is found on which it is wrong."""

import copy

import pytest
import torch
from network_cases import on_grid, random_network
from tamperings import TAMPERINGS, first
from torch import nn

from latchwork import zoo
from latchwork.automata import Machine, certify, compile, extract
from latchwork.automata.findings import Counterexample, Proof, Unknown
from latchwork.models import MinMaxRNC_LM
from latchwork.modules import set_temperature
from latchwork.tasks import make_task


def of_the_zoo(name):
    task = make_task(zoo.proof(name)["task"])
    return lambda: (zoo.load(name), Machine.from_task(task), task.vocabulary)


def compiled():
    machine = Machine.from_regex("(a|b)*abb", "ab")
    return on_grid(compile(machine, "cascade")), machine, None


def random_selection():
    model = random_network(1, degree=2, d_state=4, reset_form="selection", levels=None, output_gate=False)
    return model, extract(model), None


NETWORKS = {
    "latching-4": of_the_zoo("latching-4"),
    "parity": of_the_zoo("parity"),
    "compiled": compiled,
    "selection": random_selection,
}


@pytest.fixture
def patches(monkeypatch, request):
    """pytest's monkeypatch, with `callback` for what else is to be undone."""
    monkeypatch.callback = request.addfinalizer
    return monkeypatch


def is_wrong(model, found):
    """Whether the network itself says what the counterexample says it does."""
    with torch.no_grad():
        said = model(torch.tensor([found.word]))[0][0, -1].argmax()
    return said == found.said != found.expected


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("tampering", TAMPERINGS)
def test_a_network_that_was_tampered_with_is_not_proved(tampering, network, patches):
    model, machine, no_answer = NETWORKS[network]()
    given = TAMPERINGS[tampering](model, patches)
    found = certify(model if given is None else given, machine, no_answer=no_answer)
    if isinstance(found, Counterexample):
        assert is_wrong(model, found)
    else:
        assert isinstance(found, Unknown)
        assert found.reason
        assert found.advice


HARMLESS = {
    "as it is": lambda model: model,
    "a deep copy": copy.deepcopy,
    "made anew": lambda model: anew(model),
    "training without dropout": lambda model: without_dropout(model).train(),
    "frozen": lambda model: model.requires_grad_(False),
    "another temperature": lambda model: set_temperature(model, 2.0) or model,
    "gradient checkpointing": lambda model: setattr(model.backbone, "gradient_checkpointing", True) or model,
    "a hook of saving": lambda model: model.register_state_dict_post_hook(lambda *_: None) and model,
    "compiled beside it": lambda model: torch.compile(model, backend="eager")(torch.zeros(1, 2).long()) and model,
    "minus zero": lambda model: minus_zero(model),
    "a rate of dropout": lambda model: setattr(first(model).ffn.dropout, "p", 0.9) or model,
}


def anew(model):
    other = MinMaxRNC_LM(model.vocab_size, model.config)
    other.load_state_dict(model.state_dict())
    return other.eval()


def without_dropout(model):
    for each in model.modules():
        if isinstance(each, nn.Dropout):
            each.p = 0.0
    return model


def minus_zero(model):
    with torch.no_grad():
        for each in model.parameters():
            each[each == 0] = -0.0
    return model


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("change", HARMLESS)
def test_a_network_as_made_is_proved(change, network):
    model, machine, no_answer = NETWORKS[network]()
    found = certify(HARMLESS[change](model), machine, no_answer=no_answer)
    assert isinstance(found, Proof), found


def test_settings_of_torch_that_change_no_run_change_no_proof():
    model, machine, no_answer = NETWORKS["latching-4"]()
    torch.set_default_dtype(torch.float64)
    torch.set_flush_denormal(True)
    try:
        with torch.device("meta"), torch.enable_grad():
            assert isinstance(certify(model, machine, no_answer=no_answer), Proof)
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_flush_denormal(False)


def test_a_model_of_transformers_beside_it_changes_no_proof():
    """It gives every module of torch a method of its own, to initialise weights."""
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": 4, "n_positions": 4, "n_embd": 4, "n_layer": 1, "n_head": 1}
    transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))
    model, machine, no_answer = NETWORKS["parity"]()
    assert isinstance(certify(model, machine, no_answer=no_answer), Proof)


def test_layers_that_are_one_object_are_what_they_compute():
    model = random_network(0, n_layers=2)
    model.backbone.layers[1] = model.backbone.layers[0]
    copied = random_network(0, n_layers=2)
    copied.backbone.layers[1].load_state_dict(copied.backbone.layers[0].state_dict())
    machine = Machine.from_table([[0, 0]], [[0, 0]])
    assert certify(model, machine).word == certify(copied, machine).word


def test_what_is_changed_while_it_is_walked_through_is_not_seen():
    model, machine, no_answer = NETWORKS["latching-4"]()

    def spoil(found, waiting):
        with torch.no_grad():
            for each in model.parameters():
                each.fill_(torch.nan)

    before = certify(zoo.load("latching-4"), machine, no_answer=no_answer)
    after = certify(model, machine, no_answer=no_answer, watch=spoil)
    assert (before.states, before.margin) == (after.states, after.margin)


def test_what_is_no_network_of_ours_is_an_error_that_says_so():
    machine = Machine.from_table([[0]], [[0]])
    with pytest.raises(TypeError, match="model must be a MinMaxRNC_LM; got Linear"):
        certify(nn.Linear(2, 2), machine)
    with pytest.raises(TypeError, match="model must be a MinMaxRNC_LM; got str"):
        certify("latching-4", machine)
    with pytest.raises(TypeError, match="machine must be a Machine or a formula; got list"):
        certify(zoo.load("parity"), [[0]])


def test_a_wrapped_network_says_to_pass_the_plain_one():
    model, machine, no_answer = NETWORKS["parity"]()
    found = certify(torch.compile(model, backend="eager"), machine, no_answer=no_answer)
    assert found.reason == "the model is a OptimizedModule, not a MinMaxRNC_LM itself"
    assert found.advice == "pass the plain model, here '_orig_mod' of what was given"


@pytest.mark.parametrize("field", ["transitions", "outputs", "start"])
def test_a_machine_that_was_written_to_is_checked_again(field):
    model, machine, _ = NETWORKS["parity"]()
    values = {"transitions": machine.transitions + 9, "outputs": machine.outputs - 9, "start": -1}
    object.__setattr__(machine, field, values[field])
    with pytest.raises(ValueError, match=f"{field} must"):
        certify(model, machine)


@pytest.mark.parametrize("no_answer", [True, 1.0, "1", float("nan")])
def test_no_answer_must_be_an_integer(no_answer):
    model, machine, _ = NETWORKS["parity"]()
    with pytest.raises(TypeError, match="no_answer must be an integer, or None; got"):
        certify(model, machine, no_answer=no_answer)


def test_where_no_answer_is_asked_for_nothing_is_proved():
    model, machine, _ = NETWORKS["parity"]()
    silent = Machine.from_table(machine.transitions, 0 * machine.outputs + 5)
    assert "asks for no answer" in certify(model, silent, no_answer=5).reason
