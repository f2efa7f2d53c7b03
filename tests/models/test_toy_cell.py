"""A kind of state that the package does not know, in a model: it is trained, cut in time, packed and saved."""

import pytest
import torch
from model_cases import (
    assert_same_gradients,
    assert_same_run,
    cut,
    gradients,
    make_config,
    make_tokens,
    run_in_pieces,
)
from torch import nn

from latchwork import MinMaxNeuron, MinMaxRNC_LM, use_backend
from latchwork.automata import Machine
from latchwork.automata.certify import Unknown, certify
from latchwork.evaluation import latch_report, latch_states
from latchwork.modules.cells import Cell, ScalarCell
from seen_operations import seen_operations

VOCABULARY = 5


class LeakyCell(Cell):
    """x_t = a x_{t-1} + (1 - a) v_t with a = sigmoid(z_a), v = z_v, and one learnt bias for each scalar: a toy."""

    def __init__(self, size):
        super().__init__(size, 2 * size)
        self.bias = nn.Parameter(torch.zeros(size))

    def init_(self, weight, bias, x0, s_r_init):
        bias[: self.size].fill_(1.0)

    def forward(self, z, x0, state=None, reset=None):
        (B, T, _), states = z.shape, []
        x = x0.expand(B, -1) if state is None else state
        for t in range(T):
            if reset is not None:
                x = torch.where(reset[:, t, None], x0, x)
            a, v = torch.sigmoid(z[:, t, : self.size] + self.bias), z[:, t, self.size :]
            x = a * x + (1 - a) * v
            states.append(x)
        return torch.stack(states, 1) if states else z.new_zeros(B, 0, self.size)


def make_model(dtype=torch.float32):
    """Two layers, each with scalars of ours and the toy beside them."""
    model = MinMaxRNC_LM(VOCABULARY, make_config(d_state=10))
    for layer in model.backbone.layers:
        layer.neuron = MinMaxNeuron(6, [ScalarCell(6), LeakyCell(4)], train_init=True)
    return model.to(dtype)


def test_a_neuron_initialises_a_toy_by_its_own_word():
    neuron = make_model().backbone.layers[0].neuron
    assert torch.equal(neuron.projection.bias[12:20], torch.tensor([1.0] * 4 + [0.0] * 4))
    assert (neuron.sizes, neuron.widths, neuron.d_state) == ([6, 4], [12, 8, 10], 10)


def test_a_model_with_a_toy_learns_on_the_fast_path_as_on_the_plain_one():
    tokens, losses = make_tokens(3, 41, VOCABULARY), []
    start = make_model().state_dict()
    for backend in ("auto", "torch"):
        model = make_model()
        model.load_state_dict(start)
        optimiser = torch.optim.Adam(model.parameters(), 0.02)
        with use_backend(backend), seen_operations() as seen:
            for _ in range(10):
                loss, _ = model.loss(tokens[:, :-1], tokens[:, 1:])
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                losses.append(loss.item())
        assert ("drive" in seen) == (backend == "auto")
        assert not {"layer", "respond"} & set(seen)  # those are for scalars alone
        assert model.backbone.layers[0].neuron.cells[1].bias.grad.any()
    assert losses[9] < losses[0] - 0.05
    assert losses[:10] == pytest.approx(losses[10:], rel=1e-3)


def test_a_toy_is_cut_in_time_and_streamed():
    model, tokens = make_model(torch.float64).eval(), make_tokens(2, 30, VOCABULARY)
    whole = model(tokens)
    assert whole[1].x.shape == (2, 2, 10)
    assert_same_run(run_in_pieces(model, tokens, cut(30, [1, 7, 3])), whole, 1e-12)
    with torch.no_grad():
        pieces = list(model.stream(tokens, chunk_size=7))
        assert_same_run((torch.cat([logits for logits, _ in pieces], 1), pieces[-1][1]), whole, 1e-12)
    greedy = model.generate(tokens, 3, temperature=0)
    assert torch.equal(greedy[:, 0], whole[0][:, -1].argmax(-1))


def test_packed_sequences_do_not_see_each_other_in_values_and_gradients():
    model = make_model(torch.float64)
    parts = [make_tokens(1, length, VOCABULARY) for length in (4, 9, 2)]
    reset = torch.zeros(1, 15, dtype=torch.bool)
    reset[0, [0, 4, 13]] = True
    logits, _ = model(torch.cat(parts, 1), reset=reset)
    alone = [model(part)[0] for part in parts]
    torch.testing.assert_close(logits, torch.cat(alone, 1), rtol=1e-12, atol=1e-12)
    separate = gradients(model, sum(each.square().sum() for each in alone))
    assert_same_gradients(gradients(model, logits.square().sum()), separate, 1e-9)


def test_its_weights_go_through_a_state_dict_and_a_folder_of_ours_is_refused(tmp_path):
    model, other, tokens = make_model().eval(), make_model().eval(), make_tokens(2, 30, VOCABULARY)
    torch.save(model.state_dict(), tmp_path / "weights")
    other.load_state_dict(torch.load(tmp_path / "weights", weights_only=True))
    assert_same_run(other(tokens), model(tokens))
    model(tokens)[1].save(tmp_path / "state")
    with pytest.raises(ValueError, match=r"cells that its config names, \[ScalarCell\(10\)\]; got .*LeakyCell\(4\)"):
        model.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_its_states_are_watched_and_what_needs_a_minmax_form_says_what_it_lacks():
    model, tokens = make_model().eval(), make_tokens(2, 6, VOCABULARY)
    states = latch_states(model, tokens)
    assert states.shape == (2, 2, 6, 10)
    assert torch.equal(states[:, :, -1], model(tokens)[1].x)
    with pytest.raises(NotImplementedError, match="LeakyCell has no MinMax form"):
        latch_report(model, tokens)
    found = certify(model, Machine.from_table([[0] * VOCABULARY], [[0] * VOCABULARY]))
    assert isinstance(found, Unknown)
    assert "as made" in found.reason


@pytest.mark.slow
def test_a_compiled_model_has_the_toy_in_its_graph():
    model, tokens = make_model().eval(), make_tokens(2, 6, VOCABULARY)
    torch._dynamo.reset()
    logits, _ = torch.compile(model, fullgraph=True, backend="eager")(tokens)
    torch.testing.assert_close(logits, model(tokens)[0], rtol=1e-5, atol=1e-5)
