"""Latch: every way to call it gives what its definition gives for each sequence alone."""

import copy
import io
import warnings

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from latch_definition import run_sequence
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pack_sequence, pad_packed_sequence

from latchwork import Latch
from latchwork.modules import LatchState
from latchwork.modules.clock import Clock
from seen_operations import seen_operations

FEATURES, HIDDEN = 3, 6


def make(num_layers=2, dtype=torch.float64, **options):
    options = {"batch_first": True, "state_size": 5, "periods": (3, 8), **options}
    latch = Latch(FEATURES, HIDDEN, num_layers, dtype=dtype, **options)
    with torch.no_grad():
        for name, each in latch.named_parameters():
            if name.endswith(("bias", "conv.g")):
                each.add_(torch.randn_like(each) / 2)
    return latch


def draw(*shape, dtype=torch.float64):
    return torch.randn(*shape, FEATURES, dtype=dtype)


def close(a, b, tolerance=1e-10):
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


both = pytest.mark.parametrize("bidirectional", [False, True])
sizes = st.fixed_dictionaries(
    {
        "num_layers": st.integers(1, 3),
        "bidirectional": st.booleans(),
        "clock": st.booleans(),
        "bias": st.booleans(),
    }
)


@given(sizes, st.lists(st.integers(1, 9), min_size=1, max_size=4), st.integers(0, 99))
def test_a_batch_is_each_sequence_alone_by_the_definition(options, lengths, seed):
    torch.manual_seed(seed)
    latch = make(**options)
    u = draw(len(lengths), max(lengths))
    y, state = latch(u, lengths=lengths)
    for row, length in enumerate(lengths):
        expected, conv, x = run_sequence(latch, u[row, :length])
        close(y[row, :length], expected)
        close(state.conv[:, row], conv)
        close(state.x[:, row], x)
        assert state.step[:, row].tolist() == [length] * (2 if options["bidirectional"] else 1)
        assert not y[row, length:].any()
        ends = [expected[-1, :HIDDEN]] + [expected[0, HIDDEN:]] * options["bidirectional"]
        close(state.h[:, row], torch.stack(ends))


@both
@pytest.mark.parametrize("sort", [False, True])
def test_a_packed_sequence_gives_what_lengths_give(bidirectional, sort):
    latch, lengths = make(bidirectional=bidirectional), torch.tensor([7, 5, 5, 1] if sort else [2, 7, 1, 5])
    u = draw(4, 7)
    y, state = latch(u, lengths=lengths)
    packed, after = latch(pack_padded_sequence(u, lengths, batch_first=True, enforce_sorted=sort))
    assert isinstance(packed, PackedSequence)
    back, sizes = pad_packed_sequence(packed, batch_first=True)
    assert torch.equal(back, y)
    assert torch.equal(sizes, lengths)
    for one, other in zip(state, after, strict=True):
        assert torch.equal(one, other)
    again, _ = latch(packed_again := pack_sequence(list(u), enforce_sorted=True), after)
    close(pad_packed_sequence(again, batch_first=True)[0], latch(u, state)[0])
    assert again.batch_sizes.equal(packed_again.batch_sizes)


def test_a_packed_sequence_keeps_its_own_order_of_sequences_of_one_length():
    latch, sequences, order = make(), [draw(n) for n in (5, 7, 5, 7)], [3, 1, 2, 0]
    batch = pack_sequence([sequences[each] for each in order])
    packed = PackedSequence(batch.data, batch.batch_sizes, torch.tensor(order))
    y, _ = latch(packed)
    assert y.sorted_indices.tolist() == order
    for row, sequence in zip(pad_packed_sequence(y, batch_first=True)[0], sequences, strict=True):
        close(row[: len(sequence)], latch(sequence)[0])


@both
def test_time_first_unbatched_and_batch_first_agree(bidirectional):
    latch = make(bidirectional=bidirectional)
    u = draw(2, 7)
    y, state = latch(u)
    latch.batch_first = False
    other, after = latch(u.transpose(0, 1))
    assert torch.equal(other.transpose(0, 1), y)
    assert other.is_contiguous()
    assert torch.equal(after.x, state.x)
    alone, single = latch(u[1])
    close(alone, y[1])
    assert [tuple(each.shape) for each in single] == [tuple(each[:, 1].shape) for each in state]
    more, _ = latch(u[0], single)
    close(more, latch(u[:1].transpose(0, 1), state.select([1]))[0][:, 0])


@given(st.lists(st.integers(0, 9), min_size=1, max_size=5), st.booleans())
def test_chunks_with_the_state_carried_on_are_the_whole(chunks, clock):
    latch, total = make(clock=clock), sum(chunks)
    u = draw(2, total)
    whole, state = latch(u)
    pieces, after = [], None
    for piece in u.split(chunks, 1):
        y, after = latch(piece, after)
        pieces.append(y)
    close(torch.cat(pieces, 1), whole)
    for one, other in zip(state, after, strict=True):
        close(one, other)


def test_chunks_on_the_fused_path_are_the_whole_bit_for_bit_and_short_ones_to_rounding():
    latch = Latch(FEATURES, 24, 2, batch_first=True)
    u = draw(4, 300, dtype=torch.float32)
    whole, state = latch(u)
    for size, tolerance in ((1, 1e-4), (7, 1e-4), (50, 0), (100, 0)):  # of 7 steps and 4 rows the parts are called
        pieces, after = [], None
        for piece in u.split(size, 1):
            y, after = latch(piece, after)
            pieces.append(y)
        close(torch.cat(pieces, 1), whole, tolerance)
        close(after.x, state.x, tolerance)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.booleans(), st.integers(0, 3))
def test_sequences_packed_into_one_row_do_not_see_each_other(lengths, bidirectional, padding):
    latch = make(bidirectional=bidirectional)
    sequences = [draw(length) for length in lengths]
    u = torch.cat([*sequences, draw(padding)])[None]
    reset = torch.zeros(1, u.shape[1], dtype=torch.bool)
    starts = torch.tensor([0, *lengths[:-1]]).cumsum(0)
    reset[0, starts] = True
    y, state = latch(u, reset=reset, lengths=[sum(lengths)])
    expected = torch.cat([run_sequence(latch, each)[0] for each in sequences])
    close(y[0, : sum(lengths)], expected)
    assert state.step[0].tolist() == lengths[-1:]
    assert state.step[-1].tolist() == (lengths[:1] if bidirectional else lengths[-1:])


def test_before_the_first_reset_the_state_is_carried_on():
    latch = make()
    before, u = draw(1, 4), draw(1, 5)
    reset = torch.tensor([[False, False, True, False, False]])
    _, state = latch(before)
    y, after = latch(u, state, reset=reset)
    close(y[:, :2], latch(torch.cat((before, u), 1))[0][:, 4:6])
    close(y[:, 2:], latch(u[:, 2:])[0])
    assert after.step.tolist() == [[3]]


@both
def test_a_state_that_is_given_is_where_both_directions_begin(bidirectional):
    latch = make(bidirectional=bidirectional)
    _, state = latch(draw(3, 4))
    u = draw(3, 6)
    y, after = latch(u, state, lengths=[6, 2, 4])
    for row, length in enumerate([6, 2, 4]):
        expected, conv, x = run_sequence(latch, u[row, :length], state.map(lambda each, row=row: each[:, row]))
        close(y[row, :length], expected)
        close(after.conv[:, row], conv)
        close(after.x[:, row], x)


@both
def test_a_sequence_of_no_steps_keeps_its_state(bidirectional):
    latch = make(bidirectional=bidirectional)
    u = draw(2, 4)
    y, state = latch(u, lengths=[0, 3])
    assert not y[0].any()
    for one, other in zip(state, latch.initial_state(2), strict=True):
        assert torch.equal(one[:, 0], other[:, 0])
    _, after = latch(u, state, lengths=[2, 0])
    for one, other in zip(state, after, strict=True):
        assert torch.equal(one[:, 1], other[:, 1])
    assert latch(u[:0], lengths=[])[0].shape == (0, 4, y.shape[2])
    y, same = latch(u[:, :0], state)
    assert y.shape == (2, 0, HIDDEN * (2 if bidirectional else 1))
    assert same is state


@both
def test_what_follows_a_sequence_changes_nothing_not_even_as_nan(bidirectional):
    latch, lengths = make(bidirectional=bidirectional), [5, 2]
    u = draw(2, 5)
    spoilt = u.clone()
    spoilt[1, 2:] = float("nan")
    found = []
    for each in (u, spoilt):
        latch.zero_grad()
        y, state = latch(each, lengths=lengths)
        (y.square().sum() + state.x.sum()).backward()
        found.append([y.detach(), *(p.grad.clone() for p in latch.parameters())])
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)


@both
def test_the_gradient_is_that_of_the_definition(bidirectional):
    latch, lengths = make(bidirectional=bidirectional), [6, 3]
    u = draw(2, 6).requires_grad_()
    y, _ = latch(u, lengths=lengths)
    weights = torch.randn_like(y)
    (y * weights).sum().backward()
    found = [u.grad, *(p.grad for p in latch.parameters())]
    twin, v = copy.deepcopy(latch), u.detach().clone().requires_grad_()
    twin.zero_grad()
    for row, length in enumerate(lengths):
        (run_sequence(twin, v[row, :length])[0] * weights[row, :length]).sum().backward()
    for one, other in zip(found, [v.grad, *(p.grad for p in twin.parameters())], strict=True):
        close(one, other)


def test_the_fused_path_serves_it_and_agrees_with_the_definition():
    latch = Latch(FEATURES, 16, 2, batch_first=True, bidirectional=True)
    u = draw(3, 40, dtype=torch.float32)
    with seen_operations() as seen:
        y, _ = latch(u, lengths=[40, 11, 30])
    assert seen == ["layer"] * 4
    for row, length in enumerate([40, 11, 30]):
        close(y[row, :length], run_sequence(latch, u[row, :length])[0], 1e-4)


def test_dropout_is_one_mask_for_the_whole_sequence_between_layers():
    latch = make(num_layers=2, dropout=0.5)
    seen = []
    latch.layers[1].register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    latch.layers[0].register_forward_hook(lambda _, args, result: seen.append(result[0]))
    u = draw(3, 9)
    latch(u)
    ratio = seen[1] / seen[0]
    close(ratio, ratio[:, :1].expand_as(ratio))
    assert set(ratio.round(decimals=6).unique().tolist()) == {0.0, 2.0}
    latch.eval()
    close(latch(u)[0], latch(u)[0])


def wave(period):
    angle = 2 * torch.pi * torch.arange(period, dtype=torch.float64) / period
    return torch.stack((angle.sin(), angle.cos()), 1)


def test_the_clock_is_exact_at_any_step_and_can_be_left_out():
    clock = Clock([3, 1000])
    assert torch.equal(clock(torch.tensor(3_000_000_001)), clock(torch.tensor(1)))
    assert make(clock=False).clock is None
    with torch.device("meta"):
        bare = Clock([3, 1000])
    for moved in (Clock([3, 1000]).bfloat16().double(), bare.to_empty(device="cpu").double()):
        close(moved(torch.tensor([1001]))[0, 2:], moved(torch.tensor([1]))[0, 2:], 0)
        close(moved.table, torch.cat([wave(each) for each in (3, 1000)]), 1e-15)
    latch = make()
    state = latch.initial_state(1)._replace(step=torch.tensor([[24]]))  # 3 and 8 divide it
    u = draw(1, 5)
    close(latch(u, state)[0], latch(u)[0])
    assert not torch.equal(latch(u, state._replace(step=state.step + 1))[0], latch(u)[0])


def test_the_spread_of_the_levels_is_the_start():
    bias = Latch(3, 64).layers[0].layer.neuron.projection.bias
    r, s = bias.chunk(2)
    close(r - s, torch.full_like(r, 0.6), 1e-6)
    assert (r + s).std() > 0.8


def test_copies_and_saved_weights_give_the_same():
    latch = make(bidirectional=True)
    u = draw(2, 5)
    y, state = latch(u)
    assert torch.equal(copy.deepcopy(latch)(u)[0], y)
    file = io.BytesIO()
    torch.save({"weights": latch.state_dict(), "state": state.detach()}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    other = make(bidirectional=True)
    other.load_state_dict(saved["weights"])
    assert torch.equal(other(u, saved["state"])[0], latch(u, state)[0])
    assert not any(name.startswith("clock") for name in latch.state_dict())


def test_a_state_is_cut_moved_and_selected():
    latch = make()
    _, state = latch(draw(3, 4))
    assert state.x.requires_grad
    assert not state.detach().x.requires_grad
    half = state.to(torch.float16)
    assert (half.x.dtype, half.step.dtype) == (torch.float16, torch.int64)
    assert torch.equal(state.select([2, 0]).x, state.x[:, [2, 0]])


def test_under_autocast_it_runs_in_bfloat16_forwards_and_backwards():
    latch = make(dtype=torch.float32, bidirectional=True)
    u = draw(2, 40, dtype=torch.float32)
    expected, _ = latch(u, lengths=[40, 17])
    with torch.autocast("cpu", torch.bfloat16):
        y, state = latch(u, lengths=[40, 17])
        again, _ = latch(u, state)
    close(y.float(), expected, 0.15)
    again.float().sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in latch.parameters())
    whole = copy.deepcopy(latch).to(torch.bfloat16)
    assert whole(u.bfloat16())[0].dtype == torch.bfloat16


def test_it_takes_the_place_of_an_lstm():
    u = draw(7, 2, dtype=torch.float32)
    for kind in (nn.LSTM, nn.GRU, Latch):
        layer = kind(FEATURES, HIDDEN, 2, True, False, 0.1, True)
        layer.flatten_parameters()
        output, state = layer(u)
        assert output.shape == (7, 2, 2 * HIDDEN)
        assert layer(u, state)[0].shape == output.shape


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"input_size": 0}, "input_size must be an integer of at least 1; got 0"),
        ({"hidden_size": 2.5}, "hidden_size must be an integer of at least 1; got 2.5"),
        ({"num_layers": True}, "num_layers must be an integer"),
        ({"state_size": -1}, "state_size must be an integer"),
        ({"bidirectional": 1}, "bidirectional must be True or False; got 1"),
        ({"dropout": 1.0}, "dropout must be a number, at least 0 and less than 1; got 1.0"),
        ({"periods": ()}, "periods must be whole numbers of at least 2"),
        ({"periods": (4, 1.5)}, "periods must be whole numbers of at least 2"),
    ],
)
def test_a_wrong_option_is_named(options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        Latch(**{"input_size": 3, "hidden_size": 4, **options})


def test_dropout_of_one_layer_is_warned_of():
    with pytest.warns(UserWarning, match="no effect with num_layers=1"):
        Latch(3, 4, dropout=0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Latch(3, 4, 2, dropout=0.5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda latch, u: latch(u[..., :2]), r"input must be \(B, T, input_size = 3\)"),
        (lambda latch, u: latch(u[None]), "input must be"),
        (lambda latch, u: latch(u.long()), "input must be floating-point numbers; got torch.int64"),
        (lambda latch, u: latch(u.float()), "input must be torch.float64, as the weights are; got torch.float32"),
        (lambda latch, u: latch([1.0]), "input must be a tensor or a PackedSequence; got list"),
        (lambda latch, u: latch(u, lengths=[1]), r"lengths must be integers \(B,\) = \(2,\)"),
        (lambda latch, u: latch(u, lengths=[1.0, 2.0]), "lengths must be integers"),
        (lambda latch, u: latch(u, lengths=[1, 6]), r"lengths must be from 0 to T = 5; got \[1, 6\]"),
        (lambda latch, u: latch(u, lengths=[-1, 2]), "lengths must be from 0 to T = 5"),
        (lambda latch, u: latch(u[0], lengths=[5]), "lengths must be None for an unbatched sequence"),
        (lambda latch, u: latch(u, reset=torch.zeros(2, 5)), "reset must be bool"),
        (lambda latch, u: latch(u, reset=torch.zeros(2, 4).bool()), r"reset must be bool \(B, T\) = \(2, 5\)"),
        (lambda latch, u: latch(u, reset=[[True]]), "reset must be a tensor; got list"),
        (lambda latch, u: latch(u, latch.initial_state(2)._replace(step=torch.zeros(1, 2))), "step must be integers"),
        (lambda latch, u: latch(u, (u, u)), "state must be a LatchState"),
        (lambda latch, u: latch(u, latch.initial_state(3)), r"state.conv must be \(2, 2, 6\) for this input"),
        (lambda latch, u: latch(u[0], latch.initial_state(1)), "state"),
        (lambda latch, u: latch(pack_sequence([u[0]]), lengths=[5]), "lengths and reset must be None"),
    ],
)
def test_a_wrong_argument_is_named(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call(make(), draw(2, 5))


def test_a_state_of_a_latch_prints_nothing_but_what_it_is():
    assert isinstance(make()(draw(2, 3))[1], LatchState)
    assert repr(Latch(3, 4, 2, bidirectional=True)).startswith("Latch(\n  3, 4, num_layers=2, bidirectional=True")
