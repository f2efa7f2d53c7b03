"""Monitors step by step and in chunks against the values of whole traces."""

import math
from itertools import pairwise

import pytest
import torch
from cases_temporal import FINITE_BOUNDS, NAMES, formulas, random_traces, same, with_specials
from hypothesis import given, settings
from hypothesis import strategies as st

from latchwork.ops.cpu import kernel as cpu
from latchwork.temporal import parse
from latchwork.temporal.core import TooLarge
from latchwork.temporal.step import Step, export

ENGINES = ["torch"] if cpu.MISSING is not None else ["kernel", "torch"]
PAST_BOUNDS = st.one_of(FINITE_BOUNDS, st.just((0, None)), st.just((2, None)))
PAST = formulas(
    unary=("not", "prev", "s_prev", "rise", "fall"),
    windows=("once", "historically"),
    timed=("since",),
    bounds=PAST_BOUNDS,
)
BOUNDED = formulas(bounds=FINITE_BOUNDS)
MIXED = st.one_of(PAST, BOUNDED)


def chunks(steps, seed):
    cuts = sorted({0, steps, *(seed * k % (steps + 1) for k in range(1, seed % 4 + 1))})
    return list(pairwise(cuts))


def stream(monitor, found, pieces):
    """All values of a finite horizon: those given late, and the last ones."""
    parts = [monitor.run({name: value[:, a:b] for name, value in found.items()}) for a, b in pieces]
    assert all(bool(part.isnan().all()) for part in [torch.cat([*parts, torch.empty(2, 0)], 1)[:, : monitor.delay]])
    values = torch.cat([*parts, torch.empty(2, 0, dtype=torch.float64)], 1)[:, monitor.delay :]
    return torch.cat([values, monitor.finish()], 1)


@settings(max_examples=100)
@given(MIXED, st.integers(0, 10**6), st.integers(0, 60), st.sampled_from(ENGINES))
def test_a_monitor_gives_the_values_of_the_whole_trace_in_any_chunks(formula, seed, steps, engine):
    found = random_traces(seed, steps)
    assert same(stream(formula.online(2, engine=engine), found, chunks(steps, seed)), formula(found))


@settings(max_examples=50)
@given(formulas(bounds=FINITE_BOUNDS, binary=("and", "or", "implies")), st.integers(0, 999), st.integers(0, 40))
@pytest.mark.parametrize("engine", ENGINES)
def test_a_nan_leaves_a_monitor_with_its_window(engine, formula, seed, steps):
    found = with_specials(seed, steps, specials=(math.inf, math.nan), share=0.05)
    values = formula.online(2, engine=engine)
    parts = values.run(found)[:, values.delay :]
    assert same(torch.cat([parts, values.finish()], 1), formula(found))


AHEAD = formulas(
    unary=("not", "next", "s_next"),
    binary=("and", "or", "implies"),
    windows=("eventually", "always"),
    timed=("until",),
    bounds=st.sampled_from([(0, None), (0, None), (1, None), (0, 2), (1, 3)]),
    atoms=st.one_of(st.sampled_from([parse(text) for text in ("x", "y >= 1", "once[0:2] z", "x since y", "x <= z")])),
    leaves=5,
).filter(lambda formula: formula.horizon == math.inf)


@settings(max_examples=60)
@given(AHEAD, st.integers(0, 10**6), st.integers(1, 12), st.sampled_from(ENGINES))
def test_an_infinite_horizon_gives_the_value_of_the_trace_so_far(formula, seed, steps, engine):
    found = random_traces(seed, steps)
    try:
        monitor = formula.online(2, engine=engine)
    except TooLarge:
        return
    for t in range(steps):
        prefix = {name: value[:, : t + 1] for name, value in found.items()}
        value = monitor.step({name: each[:, t] for name, each in prefix.items()})
        assert same(value, formula(prefix)[:, 0])


@settings(max_examples=40)
@given(AHEAD, st.integers(0, 10**6), st.integers(1, 6))
def test_a_verdict_holds_whatever_comes(formula, seed, steps):
    try:
        monitor = formula.online(2)
    except TooLarge:
        return
    found = random_traces(seed, steps + 8)
    monitor.run({name: value[:, :steps] for name, value in found.items()})
    verdict = monitor.verdict
    later = monitor.run({name: value[:, steps:] for name, value in found.items()})
    for b in range(2):
        if verdict[b]:
            assert bool((later[b] * verdict[b] > 0).all())


@pytest.mark.parametrize(
    ("text", "values", "verdicts"),
    [
        ("always x", [1, 2, -1, 5], [0, 0, -1, -1]),
        ("eventually x", [-1, -2, 1, -5], [0, 0, 1, 1]),
        ("always (x implies eventually y)", [1, -1, 1, 1], [0, 0, 0, 0]),
        ("x until y", [1, 1, -1, 1], [0, 0, -1, -1]),
        ("eventually[1:] x", [1, -1, 1, 1], [0, 0, 1, 1]),
    ],
)
def test_a_verdict_comes_with_the_step_that_decides(text, values, verdicts):
    monitor = parse(text).online()
    found = []
    for value in values:
        monitor.step({"x": float(value), "y": -1.0})
        found.append(int(monitor.verdict))
    assert found == verdicts


def test_a_verdict_of_a_bounded_part_comes_when_its_steps_are_there():
    monitor = parse("always (x implies eventually[0:2] y)").online()
    found = [
        (monitor.step({"x": x, "y": y}).item(), int(monitor.verdict))
        for x, y in [(1.0, -1.0), (-1.0, -1.0), (-1.0, -1.0), (-1.0, 1.0)]
    ]
    assert found == [(-1.0, 0), (-1.0, 0), (-1.0, -1), (-1.0, -1)]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "text",
    ["x since[1:5] y and once[2:6] z", "always[0:4] (x until[1:3] y)", "always (x implies eventually[0:2] y)"],
)
def test_a_monitor_goes_on_from_a_saved_state_on_any_engine(engine, text, tmp_path):
    formula, found = parse(text), random_traces(1, 40)
    whole = formula.online(2, engine="torch").run(found)
    first = formula.online(2, engine=engine)
    before = first.run({name: value[:, :17] for name, value in found.items()})
    first.save(tmp_path / "state.safetensors")
    for other in ENGINES:
        second = formula.online(2, engine=other)
        second.load(tmp_path / "state.safetensors")
        after = second.run({name: value[:, 17:] for name, value in found.items()})
        assert same(torch.cat([before, after], 1), whole)


def test_a_state_of_another_formula_or_batch_is_refused(tmp_path):
    monitor = parse("once[0:3] x").online(2)
    monitor.save(tmp_path / "state.safetensors")
    with pytest.raises(ValueError, match="must be of the formula"):
        parse("once[0:4] x").online(2).load(tmp_path / "state.safetensors")
    with pytest.raises(ValueError, match=r"must be \(4, 3\)"):
        parse("once[0:3] x").online(3).load_state(monitor.state())
    with pytest.raises(ValueError, match="the state must hold"):
        parse("x since y").online(2).load_state(monitor.state())


def test_memory_does_not_grow_with_the_stream():
    monitor = parse("once[0:9] x and x since y").online()
    monitor.run({"x": torch.randn(100), "y": torch.randn(100)})
    size = sum(value.numel() for value in monitor.state().values())
    monitor.run({"x": torch.randn(10_000), "y": torch.randn(10_000)})
    assert sum(value.numel() for value in monitor.state().values()) == size == 10 + 1 + 1


def test_a_step_takes_numbers_rows_booleans_or_one_tensor():
    def fresh():
        return parse("x - y").online(3)

    wanted = torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64)
    assert torch.equal(fresh().step({"x": torch.tensor([1.0, 2.0, 3.0]), "y": 1.0}), wanted)
    assert torch.equal(fresh().step({"x": [1, 2, 3], "y": torch.ones(3, dtype=torch.bool)}), wanted)
    assert torch.equal(fresh().step(torch.tensor([[1.0, 1.0], [2.0, 1.0], [3.0, 1.0]])), wanted)
    assert torch.equal(fresh().step({"x": torch.tensor([1.0, 2.0, 3.0]), "y": 1, "other": 7}), wanted)
    assert fresh().signals == ("x", "y")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("batch", [1, 3])
def test_a_step_reads_views_of_any_kind(engine, batch):
    x = torch.arange(4.0 * batch, dtype=torch.float64)
    for view in (x[:batch], x[1 : batch + 1], x[::4], x[:1].expand(batch), torch.complex(x, x).conj().imag[1::4]):
        assert parse("x").online(batch, engine=engine).step({"x": view}).tolist() == view.tolist()


def test_bad_use_of_a_monitor_names_what_is_wrong():
    monitor = parse("x <= y").online(2)
    with pytest.raises(ValueError, match="a step needs x, y; got x"):
        monitor.step({"x": 1.0})
    with pytest.raises(ValueError, match=r"x must be a number or \(B,\) = \(2,\)"):
        monitor.step({"x": [1.0, 2.0, 3.0], "y": 1.0})
    with pytest.raises(ValueError, match="must be of 2 traces"):
        monitor.run({name: torch.zeros(3, 4) for name in NAMES})
    with pytest.raises(ValueError, match="infinite horizon"):
        _ = monitor.verdict
    monitor.finish()
    for use in (lambda: monitor.step({"x": 1.0, "y": 1.0}), monitor.state, monitor.finish):
        with pytest.raises(RuntimeError, match="call reset"):
            use()
    monitor.reset()
    assert monitor.step({"x": 1.0, "y": 1.0}).tolist() == [0.0, 0.0]
    with pytest.raises(ValueError, match="would keep"):
        parse("once[0:999999999999] x").online()
    with pytest.raises(ValueError, match="evaluate the formula on whole traces"):
        parse("once always x").online()
    with pytest.raises(ValueError, match="evaluate the formula on whole traces"):
        parse("x iff always x").online()


def test_exp_and_pow_run_in_torch_to_rounding():
    formula, found = parse("once[0:3] exp(x) - pow(abs(y), 1.5) <= sqrt(abs(z))"), random_traces(3, 30)
    torch.testing.assert_close(formula.online(2).run(found), formula(found))
    with pytest.raises(ValueError, match="round otherwise"):
        formula.online(2, engine="kernel")


def test_a_learnt_threshold_is_that_of_the_formula_when_the_monitor_is_made():
    formula = parse("x <= $limit")
    with torch.no_grad():
        formula.parameters()[0].fill_(3.0)
    assert formula.online().step({"x": 1.0}).item() == 2.0


@pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated:FutureWarning")
def test_a_step_exports_to_onnx_and_gives_the_same_values_for_any_batch(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    formula = parse("x since[1:4] y and once[0:3] x <= $limit and eventually[0:2] y")
    path = tmp_path / "step.onnx"
    inputs, outputs = export(formula, path)
    session = onnxruntime.InferenceSession(str(path))
    assert [each.name for each in session.get_inputs()] == inputs
    found = random_traces(2, 12, batch=3)
    values = torch.stack([found["x"], found["y"]], -1).float()
    step = Step(formula)
    state = step.start(batch=3)
    theirs = [each.numpy() for each in state]
    for t in range(12):
        ours, *state = step(values[:, t], *state)
        given = dict(zip(inputs, [values[:, t].numpy(), *theirs], strict=True))
        answer, *theirs = session.run(outputs, given)
        assert torch.equal(torch.from_numpy(answer), ours)
