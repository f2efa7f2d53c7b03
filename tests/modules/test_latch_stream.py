"""A stream of single steps gives what the Latch gives for the whole sequence."""

import pytest
import torch

from latchwork import Latch
from latchwork.modules.feedforward import FeedForward
from latchwork.modules.latch_stream import LatchStream


@pytest.mark.parametrize("options", [{}, {"clock": False}, {"bias": False, "num_layers": 1}, {"state_size": 7}])
def test_steps_of_a_stream_are_the_whole_and_hand_their_state_back(options):
    latch = Latch(3, 10, **{"num_layers": 3, "batch_first": True, "periods": (3, 40), **options}, dtype=torch.float64)
    u = torch.randn(2, 30, 3, dtype=torch.float64)
    with torch.no_grad():
        expected, after = latch(u)
        _, state = latch(u[:, :9])
    stream = latch.stream(state)
    found = torch.stack([stream(u[:, t]) for t in range(9, 20)], 1)
    torch.testing.assert_close(found, expected[:, 9:20])
    rest, last = latch(u[:, 20:], stream.state)
    torch.testing.assert_close(rest, expected[:, 20:])
    for one, other in zip(last, after, strict=True):
        torch.testing.assert_close(one, other)


def test_a_stream_keeps_the_weights_that_it_was_made_with():
    latch, u = Latch(3, 10, 2, batch_first=True), torch.randn(1, 1, 3)
    stream, expected = latch.stream(), latch(u)[0][0].detach()
    with torch.no_grad():
        for each in latch.parameters():
            each.add_(1)
    torch.testing.assert_close(stream(u[0]), expected)


def test_a_stream_refuses_what_it_cannot_do():
    with pytest.raises(TypeError, match="latch must be a Latch; got LSTM"):
        LatchStream(torch.nn.LSTM(2, 3))
    with pytest.raises(ValueError, match="latch must have one direction"):
        Latch(2, 3, bidirectional=True).stream()
    latch = Latch(2, 3)
    with pytest.raises(ValueError, match="rows are at one step"):
        latch.stream(latch.initial_state(2)._replace(step=torch.tensor([[0, 1]])))
    with pytest.raises(ValueError, match=r"state.x must be \(1, 1, 3\)"):
        latch.stream(Latch(2, 3, state_size=4).initial_state(1))
    with pytest.raises(ValueError, match=r"u must be \(B, input_size\) = \(2, 2\); got \(1, 2\)"):
        latch.stream(batch_size=2)(torch.zeros(1, 2))
    latch.layers[0].layer.ffn.register_forward_hook(lambda *_: None)
    with pytest.raises(ValueError, match="latch must be as it was made, without hooks"):
        latch.stream()
    other = Latch(2, 3)
    other.layers[0].layer.ffn = FeedForward(3)
    with pytest.raises(ValueError, match="latch must be as it was made"):
        other.stream()
