"""A Latch in onnxruntime gives what it gives in torch: one step, chunks and whole sequences, in both directions."""

import pytest
import torch

from latchwork import Latch
from latchwork.models.export_latch import INPUTS, OUTPUTS, export_latch
from latchwork.modules import LatchState

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")
# torch's, of torch to itself
pytestmark = pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is deprecated:FutureWarning")


def export(latch, folder, **options):
    export_latch(latch, folder / "latch.onnx", **options)
    return onnxruntime.InferenceSession(folder / "latch.onnx", providers=["CPUExecutionProvider"])


def run(session, u, state, lengths=None):
    values = (u, state.conv, state.x, state.step)
    feed = {name: each.detach().contiguous().numpy() for name, each in zip(INPUTS, values, strict=True)}
    if lengths is not None:
        feed["lengths"] = torch.tensor(lengths).numpy()
    y, *after = (torch.from_numpy(each) for each in session.run(OUTPUTS, feed))
    return y, LatchState(*after)


def assert_same(found, expected):
    for one, other in zip((found[0], *found[1]), (expected[0], *expected[1]), strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


def test_steps_and_chunks_in_onnxruntime_are_the_whole(tmp_path):
    latch = Latch(3, 8, 2, batch_first=True, dropout=0.5)
    u = torch.randn(4, 30, 3)
    with torch.no_grad():
        expected = latch.eval()(u)
    latch.train()
    step, chunk = export(latch, tmp_path), export(latch, tmp_path, length=13)
    assert latch.training
    state, outputs = latch.initial_state(4), []
    for piece in u.split([1, 1, 13, 1, 13, 1], 1):
        y, state = run(step if piece.shape[1] == 1 else chunk, piece, state)
        outputs.append(y)
    assert_same((torch.cat(outputs, 1), state), expected)


@pytest.mark.parametrize("batch_size", [None, 3])
def test_a_whole_sequence_in_both_directions_ends_where_lengths_say(tmp_path, batch_size):
    latch = Latch(2, 6, 2, bidirectional=True, state_size=5, periods=(7,)).eval()
    session = export(latch, tmp_path, length=20, lengths=True, batch_size=batch_size)
    u = torch.randn(3, 20, 2)
    with torch.no_grad():
        y, expected = latch(u.transpose(0, 1), lengths=[20, 7, 0])
    found = run(session, u, latch.initial_state(3), [20, 7, 0])
    assert_same(found, (y.transpose(0, 1), expected))


def test_without_a_clock_or_lengths_too(tmp_path):
    latch = Latch(2, 6, bidirectional=True, batch_first=True, clock=False).eval()
    u = torch.randn(5, 9, 2)
    with torch.no_grad():
        expected = latch(u)
    assert_same(run(export(latch, tmp_path, length=9), u, latch.initial_state(5)), expected)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length": 0}, "length must be an integer of at least 1; got 0"),
        ({"batch_size": 1.5}, "batch_size must be an integer of at least 1, or None; got 1.5"),
        ({"path": "no/such/folder/latch.onnx"}, "path must be in a folder that exists"),
        ({"latch": torch.nn.LSTM(2, 3)}, "latch must be a Latch; got LSTM"),
    ],
)
def test_a_wrong_argument_of_the_export_is_named(options, message):
    with pytest.raises((ValueError, TypeError, FileNotFoundError), match=message):
        export_latch(**{"latch": Latch(2, 3), "path": "latch.onnx", **options})
