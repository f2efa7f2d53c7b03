"""Export: ONNX graphs in onnxruntime, and torch.export, against the model itself."""

import json
import sys
from itertools import pairwise, product

import pytest
import torch
from torch.export import Dim

from latchwork import MinMaxRNC_LM, MinMaxRNCLMConfig, State
from latchwork.models import export, onnx_graph
from latchwork.models.export import export_chunk, export_step
from latchwork.ops.reference import reference_scan

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxscript")
onnxruntime = pytest.importorskip("onnxruntime")
# torch's, of torch to itself
pytestmark = pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated:FutureWarning")

LENGTH, VOCABULARY = 17, 11
VARIANTS = {
    "degree one": {"n_layers": 2, "d_state": 10, "ffn_dropout": 0.5, "train_init": True},
    "degree n": {"n_layers": 1, "d_state": 6, "degree": 3, "levels": 5, "conv_type": "gated", "norm": "rmsnorm"},
}


def make_model(**config):
    torch.manual_seed(0)
    return MinMaxRNC_LM(VOCABULARY, MinMaxRNCLMConfig.small(d_model=12, **config))


def make_state(model, B):
    """After some tokens, so that it is on the grid if there is one."""
    with torch.no_grad():
        return model(torch.randint(VOCABULARY, (B, 5)))[1]


def feed(tokens, state):
    return dict(zip(export.INPUTS, (each.contiguous().numpy() for each in (tokens, *state)), strict=True))


def run(session, tokens, state):
    logits, conv, x = (torch.from_numpy(each) for each in session.run(export.OUTPUTS, feed(tokens, state)))
    return logits, State(conv, x)


def open_session(path):
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


def assert_close(found, expected):
    for one, other in zip((found[0], *found[1]), (expected[0], *expected[1]), strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


def test_the_names_of_symbols_and_outputs_are_in_the_file(tmp_path):
    model, names = make_model(n_layers=1, d_state=4), ["login", "pay", '"<&']
    export_step(model, tmp_path / "named.onnx", symbol_names=names, output_names=("reject", "accept"))
    found = open_session(tmp_path / "named.onnx").get_modelmeta().custom_metadata_map
    assert json.loads(found["latchwork.symbol_names"]) == names
    assert json.loads(found["latchwork.output_names"]) == ["reject", "accept"]
    with pytest.raises(ValueError, match="symbol_names must be 1 to 11 names, one for each of the first tokens; got "):
        export_step(model, tmp_path / "named.onnx", symbol_names=["a"] * 12)


@pytest.fixture(scope="module", params=VARIANTS)
def exported(request, tmp_path_factory):
    """A model in eval mode, the folder it was exported to, and sessions of a step and a chunk."""
    model, folder = make_model(**VARIANTS[request.param]), tmp_path_factory.mktemp("onnx")
    model.train()
    model.head.eval()
    modes = [module.training for module in model.modules()]
    export_step(model, folder / "step.onnx")
    export_chunk(model, folder / "chunk.onnx", length=LENGTH)
    assert [module.training for module in model.modules()] == modes
    return model.eval(), folder, open_session(folder / "step.onnx"), open_session(folder / "chunk.onnx")


@pytest.mark.slow
def test_a_chunk_and_a_step_equal_torch_for_any_batch(exported):
    model, _, step, chunk = exported
    for (session, T), B in product(((step, 1), (chunk, LENGTH)), (1, 2, 5)):
        tokens, state = torch.randint(VOCABULARY, (B, T)), make_state(model, B)
        with torch.no_grad():
            assert_close(run(session, tokens, state), model(tokens, state))


@pytest.mark.slow
def test_chunks_and_then_steps_equal_torch_on_the_whole_sequence(exported):
    model, _, step, chunk = exported
    ends = [0, LENGTH, 2 * LENGTH, 2 * LENGTH + 1, 2 * LENGTH + 2, 2 * LENGTH + 3]
    tokens = torch.randint(VOCABULARY, (3, ends[-1]))
    state, pieces = model.initial_state(3).detach(), []
    for start, end in pairwise(ends):
        logits, state = run(step if end - start == 1 else chunk, tokens[:, start:end], state)
        pieces.append(logits)
    with torch.no_grad():
        assert_close((torch.cat(pieces, 1), state), model(tokens))


@pytest.mark.slow
def test_the_graph_is_plain_and_says_nothing_of_this_machine(exported):
    _, folder, _, _ = exported
    assert sorted(path.name for path in folder.iterdir()) == ["chunk.onnx", "step.onnx"]
    for path in folder.iterdir():
        graph = onnx.load(path).graph
        assert not {node.op_type for node in graph.node} & {"Loop", "Scan", "If", "SequenceAt"}
        assert {node.domain for node in graph.node} == {""}
        assert len({each.name for each in graph.initializer}) == len(graph.initializer)
        assert tuple(each.name for each in graph.input) == export.INPUTS
        assert tuple(each.name for each in graph.output) == export.OUTPUTS
        assert graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"
        assert b"/site-packages/" not in path.read_bytes()


def whole_numbers(model):
    """Weights that make every product and sum a small whole number, exact in float32 in any order.

    The first unit of the first layer holds what it has.
    """
    neuron = model.backbone.layers[0].neuron
    degree = getattr(neuron.cells[0], "degree", 1)
    rows_of_r = neuron.d_state * degree
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randint(-1, 2, parameter.shape) * (torch.rand(parameter.shape) < 0.4))
        hold = torch.eye(degree).mul(2).sub(1).flatten()
        for values, rows in (
            (hold, slice(0, len(hold))),
            (-1.0, slice(rows_of_r, rows_of_r + degree)),
        ):
            neuron.projection.weight[rows], neuron.projection.bias[rows] = 0, values
    return model.eval()


@pytest.mark.slow
@pytest.mark.parametrize(("degree", "length"), [(1, 30), (2, 3)])
def test_a_network_of_whole_numbers_is_exported_bit_for_bit(degree, length, tmp_path):
    config = {"norm": "none", "postlayers_norm": "none", "output_gate": False, "tie_weights": False}
    model = whole_numbers(make_model(n_layers=1, d_state=8, degree=degree, **config))
    export_chunk(model, tmp_path / "chunk.onnx", length=length, batch_size=2)
    session = open_session(tmp_path / "chunk.onnx")
    assert session.get_inputs()[0].shape == [2, length]
    kinds = [node.op_type for node in onnx.load(tmp_path / "chunk.onnx").graph.node]
    assert kinds.count("Min") + kinds.count("Max") <= (2 * length if degree > 1 else 7 * length**0.5)
    tokens, state = torch.randint(VOCABULARY, (2, length)), model.initial_state(2)
    state = State(torch.randint_like(state.conv, -2, 3), torch.randint_like(state.x, -2, 3))
    state.x[..., 0] = -0.0
    logits, after = run(session, tokens, state)
    with torch.no_grad():
        expected, expected_after = model(tokens, state)
    assert expected.abs().max() < 2**20
    assert expected_after.x.unique().numel() > 3
    assert (expected_after.x[..., 0] == 0).all()
    assert torch.equal(logits, expected)
    assert torch.equal(after.x.view(torch.int32), expected_after.x.view(torch.int32))  # the sign of a zero as well
    assert torch.equal(after.conv, expected_after.conv)


@pytest.mark.parametrize("T", [2, 11, 12, 13, 16, 19])
@pytest.mark.parametrize("unit", [(4,), (2, 3)], ids=["degree one", "degree n"])
def test_the_recurrence_in_onnx_operators_equals_the_definition(unit, T):
    s, r = torch.randint(-3, 4, (2, T, *unit)) / 2, torch.randint(-3, 4, (2, T, *unit, *unit[1:])) / 2
    x0 = torch.randn(2, *unit)
    s[0, 1] = torch.nan
    found = torch.from_numpy(onnx_graph._scan(r.numpy(), s.numpy(), x0.numpy()).value)
    torch.testing.assert_close(found, reference_scan(r, s, x0), atol=0, rtol=0, equal_nan=True)


def test_a_file_is_written_whole_or_not_at_all(exported, monkeypatch, tmp_path):
    class Program:
        def save(self, path):
            path.write_bytes(b"half")
            raise OSError("no space left")

    path = tmp_path / "model.onnx"
    path.write_bytes(b"before")
    with pytest.raises(OSError, match="no space left"):
        onnx_graph.write(Program(), path)
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("model.onnx", b"before")]


def test_weights_too_large_for_one_file_are_put_beside_it(exported, tmp_path):
    model, folder, _, chunk = exported

    class Program:
        def save(self, path):
            model = onnx.load(folder / "chunk.onnx")
            onnx.save(model, path, save_as_external_data=True, location=f"{path.name}.data")

    onnx_graph.write(Program(), tmp_path / "model.onnx")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["model.onnx", "model.onnx.data"]
    tokens, state = torch.randint(VOCABULARY, (2, LENGTH)), make_state(model, 2)
    assert_close(run(open_session(tmp_path / "model.onnx"), tokens, state), run(chunk, tokens, state))


def test_bad_arguments_are_named(tmp_path):
    model = make_model(n_layers=1, d_state=4)
    with pytest.raises(TypeError, match="model must be a MinMaxRNC_LM; got MinMaxRNC"):
        export_step(model.backbone, tmp_path / "model.onnx")
    with pytest.raises(ValueError, match="length must be an integer of at least 1; got 0"):
        export_chunk(model, tmp_path / "model.onnx", length=0)
    with pytest.raises(ValueError, match="batch_size must be an integer of at least 1, or None; got 0"):
        export_step(model, tmp_path / "model.onnx", batch_size=0)
    with pytest.raises(FileNotFoundError, match=r"path must be in a folder that exists; got .*none.model\.onnx"):
        export_step(model, tmp_path / "none" / "model.onnx")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("package", ["onnx", "onnxscript"])
def test_a_missing_package_is_named_with_its_extra(package, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=r"pip install 'latchwork\[onnx\]'"):
        export_step(make_model(n_layers=1, d_state=4), tmp_path / "model.onnx")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variant", "carried", "dtype"),
    [("degree one", True, torch.float64), ("degree n", False, torch.float64), ("degree one", True, torch.float32)],
)
def test_torch_export_gives_the_same_for_any_size_and_when_loaded(variant, carried, dtype, tmp_path):
    """The same bits in float64; in float32 a layer as it runs here has a kernel of its own, and is near to it."""
    model = make_model(**VARIANTS[variant]).to(dtype).eval()
    B, T = Dim("B", min=1, max=64), Dim("T", min=2, max=4096)
    shapes = {"tokens": {0: B, 1: T}, "state": State({1: B}, {1: B}) if carried else None}
    with torch.no_grad():
        arguments = torch.zeros(2, 7, dtype=torch.long), model.initial_state(2) if carried else None
        program = torch.export.export(model, arguments, dynamic_shapes=shapes)
        assert [node for node in program.graph.nodes if node.target is torch.ops.latchwork.minmax_scan.default]
        torch.export.save(program, tmp_path / "model.pt2")
        for each in (program.module(), torch.export.load(tmp_path / "model.pt2").module()):
            for rows, steps in [(1, 2), (2, 7), (10, 3), (3, 400)]:
                tokens, state = torch.randint(VOCABULARY, (rows, steps)), make_state(model, rows) if carried else None
                logits, after = each(tokens, state)
                y, expected = model.backbone(model.embedding(tokens), state)  # as exported: not by pairs of tokens
                assert isinstance(after, State)
                if dtype == torch.float64:
                    assert torch.equal(logits, model.head(y))
                    assert torch.equal(after.conv, expected.conv)
                    assert torch.equal(after.x, expected.x)
                assert_close((logits, after), model(tokens, state))
