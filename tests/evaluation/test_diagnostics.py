"""The latch report against its definition, a loop over scalars."""

import pytest
import torch

from latchwork import MinMaxRNC, MinMaxRNC_LM, MinMaxRNCConfig, MinMaxRNCLMConfig, State
from latchwork.evaluation import latch_report, latch_states
from latchwork.evaluation.accuracy import ModeGap, measure
from latchwork.tasks import make_task
from latchwork.tasks.task import Batch

COUNTS = ("set", "reset", "moved", "held", "dead")
VARIANTS = {
    "degree one": {},
    "degree one, levels": {"levels": 3, "conv_type": "gated"},
    "degree 2": {"degree": 2, "train_init": True},
    "degree 3, levels": {"degree": 3, "levels": 4, "output_gate": False},
}
each_variant = pytest.mark.parametrize("variant", VARIANTS)


def make_model(variant, n_layers=2, dtype=torch.float64):
    """In float64, whose products are the same bits in any grouping of small sizes and take no kernel of ours."""
    config = MinMaxRNCConfig(d_model=8, n_layers=n_layers, d_state=6, **VARIANTS[variant])
    return MinMaxRNC(config).to(dtype).eval()


def make_state(model, B):
    state = model.initial_state(B).detach()
    return State(torch.randn_like(state.conv), model(torch.randn(B, 9, 8, dtype=state.x.dtype))[1].x.detach())


def signals(model, u, state, reset):
    """(neuron, state before, r, s) of each layer, the layers run part by part."""
    for number, layer in enumerate(model.layers):
        conv, x = (None, None) if state is None else (state.conv[number], state.x[number])
        (cell,), z = layer.neuron.cells, layer.drive(u, conv, reset)
        yield layer.neuron, x, *cell.as_minmax(z[..., : cell.width], layer.neuron.start())
        u = u + layer.neuron.respond(z, x, reset)[0]


def count_by_loop(neuron, x, r, s, reset):
    """The counts of one layer, (d_state,) each, and its states (B, T, d_state), one scalar at a time."""
    n = getattr(neuron.cells[0], "degree", 1)
    units = neuron.d_state // n
    B, T = s.shape[:2]
    r, s = r.reshape(B, T, units, n, n).tolist(), s.reshape(B, T, units, n).tolist()
    x0 = neuron.start().reshape(units, n).tolist()
    counts = {name: [0] * neuron.d_state for name in COUNTS}
    states = torch.empty(B, T, units, n, dtype=torch.float64)
    for b in range(B):
        now = x0 if x is None else x[b].reshape(units, n).tolist()
        for t in range(T):
            before = x0 if reset is not None and reset[b, t] else now
            now = [[0.0] * n for _ in range(units)]
            for u in range(units):
                for i in range(n):
                    cap, floor, old = r[b][t][u][i], s[b][t][u][i], before[u]
                    came = [min(cap[k], old[k]) for k in range(n)]
                    value = max(came)
                    others = [k for k in range(n) if k != i]
                    if floor > value:
                        value, cause = floor, "set"
                    elif value == old[i] <= cap[i]:
                        cause = "held"
                    elif any(value == old[k] <= cap[k] for k in others):
                        cause = "moved"
                    else:
                        cause = "reset"
                        assert any(value == cap[k] < old[k] for k in range(n))
                    counts[cause][u * n + i] += 1
                    start = x0[u][i]
                    if old[i] == start and floor < start < cap[i] and all(came[k] < start for k in others):
                        assert cause == "held"
                        counts["dead"][u * n + i] += 1
                    now[u][i] = value
            states[b, t] = torch.tensor(now, dtype=torch.float64)
    return counts, states.flatten(2)


@each_variant
@pytest.mark.parametrize(
    ("B", "T", "carried", "packed"), [(1, 1, False, False), (3, 7, True, True), (2, 5, False, True)]
)
def test_a_report_equals_the_loop_scalar_by_scalar(variant, B, T, carried, packed):
    model = make_model(variant)
    u = torch.randn(B, T, 8, dtype=torch.float64)
    state = make_state(model, B) if carried else None
    reset = torch.rand(B, T) < 0.3 if packed else None
    report = latch_report(model, u, state, reset=reset)
    every = latch_states(model, u, state, reset=reset)
    for number, (neuron, x, r, s) in enumerate(signals(model, u, state, reset)):
        counts, states = count_by_loop(neuron, x, r, s, reset)
        for name in COUNTS:
            assert getattr(report, name)[number].tolist() == counts[name], name
        assert torch.equal(every[number], states)
        assert torch.equal(report.left[number], (states != neuron.start().flatten()).flatten(0, 1).any(0))
        assert torch.equal(report.lowest[number], states.flatten(0, 1).amin(0))
        assert torch.equal(report.highest[number], states.flatten(0, 1).amax(0))
    expected = model(u, state, reset=reset)[1]
    assert torch.equal(report.state.x, expected.x)
    assert torch.equal(report.state.conv, expected.conv)
    assert report.steps == B * T


@each_variant
def test_every_step_has_one_cause_and_all_causes_occur(variant):
    report = latch_report(make_model(variant), torch.randn(8, 50, 8, dtype=torch.float64))
    total = sum(report.share(name) for name in ("set", "reset", "moved", "held"))
    torch.testing.assert_close(total, torch.ones_like(total))
    assert (report.dead <= report.held).all()
    for name in COUNTS:
        assert getattr(report, name).any() == (name != "moved" or "degree one" not in variant), name


@each_variant
def test_chunks_merge_to_the_whole(variant):
    model, u = make_model(variant), torch.randn(2, 12, 8, dtype=torch.float64)
    reset = torch.rand(2, 12) < 0.2
    whole = latch_report(model, u, reset=reset)
    merged, state = None, None
    for start, end in [(0, 1), (1, 6), (6, 12)]:
        piece = latch_report(model, u[:, start:end], state, reset=reset[:, start:end])
        state = piece.state
        merged = piece if merged is None else merged.merge(piece)
    assert merged.steps == whole.steps
    for name in (*COUNTS, "left"):
        assert torch.equal(getattr(merged, name), getattr(whole, name)), name
    for name in ("lowest", "highest"):
        torch.testing.assert_close(getattr(merged, name), getattr(whole, name))
    torch.testing.assert_close(merged.state.x, whole.state.x)


def make_neuron_constant(model, r, s):
    """Every r and every s of the first layer the same at every step."""
    neuron = model.layers[0].neuron
    with torch.no_grad():
        neuron.projection.weight.zero_()
        neuron.projection.bias[:6], neuron.projection.bias[6:12] = r, s
    return model


@pytest.mark.parametrize(
    ("r", "s", "expected"),
    [
        (1.0, -1.0, {"held": 5, "dead": 5}),  # the dead zone of x0 = 0
        (1.0, 0.0, {"held": 5}),  # a tie with the state is held, and not dead
        (2.0, 1.0, {"set": 1, "held": 4}),  # set, and then held by what set it
        (-1.0, -2.0, {"reset": 1, "held": 4}),
        (-1.0, -1.0, {"reset": 1, "held": 4}),  # r and s agree on less than the state
        (-1.0, 1.0, {"set": 5}),  # s above r: written anew at every step
        (-1.0, 0.0, {"set": 5}),
    ],
)
def test_constant_signals_have_the_causes_they_should(r, s, expected):
    model = make_neuron_constant(make_model("degree one", n_layers=1), r, s)
    report = latch_report(model, torch.randn(1, 5, 8, dtype=torch.float64))
    for name in COUNTS:
        assert report.__dict__[name].unique().tolist() == [expected.get(name, 0)], name
    still = max(min(r, 0.0), s) == 0.0
    assert report.stuck.tolist() == [1.0 if still else 0.0]


def test_a_scalar_that_left_once_has_left():
    still, gone = (make_neuron_constant(make_model("degree one", n_layers=1), 1.0, s) for s in (-1.0, 0.5))
    u = torch.randn(1, 3, 8, dtype=torch.float64)
    first, second = latch_report(still, u), latch_report(gone, u)
    for merged in (first.merge(second), second.merge(first)):
        assert merged.left.all()
        assert (merged.lowest.unique().tolist(), merged.highest.unique().tolist()) == ([0.0], [0.5])


def test_a_trained_start_is_the_start_of_the_dead_zone():
    model = make_neuron_constant(make_model("degree one", n_layers=1), 2.0, 0.5)
    model.layers[0].neuron.x0.fill_(1.0)
    report = latch_report(model, torch.randn(2, 4, 8, dtype=torch.float64))
    assert report.share("dead").unique().tolist() == [1.0]
    assert not report.left.any()


@pytest.mark.parametrize(("vocabulary", "T"), [(50, 40), (3, 400)], ids=["fused", "by pairs of tokens"])
def test_a_language_model_on_its_fast_paths_is_watched_and_left_as_it_was(vocabulary, T):
    model = MinMaxRNC_LM(vocabulary, MinMaxRNCLMConfig.small()).train()
    model.head.eval()
    modes = [module.training for module in model.modules()]
    tokens = torch.randint(vocabulary, (3, T))
    torch.manual_seed(1)
    expected = model(tokens)
    report = latch_report(model, tokens)
    assert [module.training for module in model.modules()] == modes
    assert not any(module._forward_hooks for module in model.modules())
    torch.manual_seed(1)
    assert torch.equal(model(tokens)[0], expected[0])
    assert report.steps == 3 * T
    assert report.set.shape == (2, 40)
    total = report.set + report.reset + report.moved + report.held
    assert total.unique().tolist() == [report.steps]
    assert not report.lowest.requires_grad
    assert latch_states(model, tokens).shape == (2, 3, T, 40)


def test_a_run_that_fails_leaves_the_model_as_it_was():
    model = make_model("degree one")
    with pytest.raises(ValueError, match="u must be"):
        latch_report(model, torch.randn(2, 3, 7, dtype=torch.float64))
    assert not any(module._forward_hooks for module in model.modules())


def test_a_report_prints_one_line_for_each_layer():
    text = str(latch_report(make_model("degree one", n_layers=3), torch.randn(1, 4, 8, dtype=torch.float64)))
    header, *lines = text.splitlines()
    assert all(name in header for name in (*COUNTS, "stuck"))
    assert [line.split()[0] for line in lines] == ["0", "1", "2"]


def test_bad_arguments_are_named():
    model, other = make_model("degree one"), make_model("degree one", n_layers=1)
    u = torch.randn(2, 3, 8, dtype=torch.float64)
    report = latch_report(model, u)
    with pytest.raises(TypeError, match="model must be a MinMaxRNC_LM or a MinMaxRNC; got MinMaxLayer"):
        latch_report(model.layers[0], u)
    with pytest.raises(ValueError, match=r"inputs must be \(B, T, ...\) with B and T at least 1; got \(2, 0, 8\)"):
        latch_report(model, u[:, :0])
    with pytest.raises(ValueError, match=r"then must be of the same model, .* = \(2, 6\); got \(1, 6\)"):
        report.merge(latch_report(other, u))
    with pytest.raises(ValueError, match="name must be one of set, reset, moved, held, dead; got 'hold'"):
        report.share("hold")


def test_with_answers_the_report_compares_training_mode_and_evaluation_mode():
    torch.manual_seed(0)
    task = make_task("latching(2)")
    tokens, targets = task.sample("train", 0, 8, 30)
    model = MinMaxRNC_LM(task.vocabulary, MinMaxRNCLMConfig.small(d_model=8, d_state=4, ffn_dropout=0.5)).eval()
    report = latch_report(model, tokens, targets=targets)
    both = [measure(model, Batch(tokens, targets), training=mode).accuracy for mode in (True, False)]
    assert report.mode_gap.evaluation == both[1]
    assert report.mode_gap.training == pytest.approx(both[0], abs=0.3)  # dropout is drawn
    assert "in training mode" in str(report)
    assert "reads dropout as a signal" in ModeGap(0.97, 0.5).warning
    assert ModeGap(0.97, 0.96).warning is None
    plain = MinMaxRNC_LM(task.vocabulary, MinMaxRNCLMConfig.small(d_model=8, d_state=4, ffn_dropout=0.0)).eval()
    assert latch_report(plain, tokens, targets=targets).mode_gap is None
