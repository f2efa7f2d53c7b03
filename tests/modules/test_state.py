"""A state: rows of a batch, cut, moved, joined, written and read, and never changed in place."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from latchwork import State


def make_state(rows=4, layers=(3,), dtype=torch.float32):
    return State(torch.randn(*layers, rows, 5).to(dtype), torch.randn(*layers, rows, 6).to(dtype))


def assert_same(one, other):
    assert isinstance(one, State)
    assert isinstance(other, State)
    assert torch.equal(one.conv, other.conv)
    assert torch.equal(one.x, other.x)


both_forms = pytest.mark.parametrize("layers", [(), (3,)], ids=["of a layer", "of a cascade"])


@both_forms
@given(
    B=st.integers(0, 5),
    data=st.data(),
)
def test_select_takes_the_named_rows_in_the_named_order(layers, B, data):
    state = make_state(B, layers)
    rows = data.draw(st.lists(st.integers(0, B - 1), max_size=7)) if B else []
    expected = State(state.conv[..., rows, :], state.x[..., rows, :])
    for given_as in (rows, tuple(rows), torch.tensor(rows, dtype=torch.long), torch.tensor(rows, dtype=torch.int32)):
        assert_same(state.select(given_as), expected)
    assert state.select(rows).batch_size == len(rows)


@both_forms
def test_select_takes_the_rows_where_a_mask_is_true(layers):
    state = make_state(4, layers)
    mask = [True, False, True, False]
    for given_as in (mask, torch.tensor(mask)):
        assert_same(state.select(given_as), state.select([0, 2]))
    assert state.select([False] * 4).batch_size == 0


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([True, False], r"rows, as bool, must be \(B,\) = \(4,\); got \(2,\)"),
        ([[0, 1]], "rows must be one dimension of integers or bools"),
        (torch.tensor(1), "rows must be one dimension"),
        ([0.0, 1.0], "rows must be one dimension of integers"),
    ],
)
def test_rows_that_are_no_rows_are_an_error(rows, message):
    with pytest.raises(ValueError, match=message):
        make_state().select(rows)


@pytest.mark.parametrize("rows", [[4], [-1], [0, 7]])
def test_a_row_that_does_not_exist_is_an_error(rows):
    with pytest.raises((IndexError, RuntimeError), match=r"out of .*(bounds|range)"):
        make_state().select(rows)


def test_reorder_is_a_selection_of_as_many_rows_as_there_are():
    state = make_state()
    assert_same(state.reorder([3, 3, 0, 1]), state.select([3, 3, 0, 1]))
    with pytest.raises(ValueError, match="rows must name 4 rows, one for each of the batch; got 3"):
        state.reorder([0, 1, 2])
    with pytest.raises(ValueError, match="rows"):
        state.reorder(torch.tensor([True, False, True, False]))


@both_forms
def test_repeat_puts_copies_of_a_row_side_by_side(layers):
    state = make_state(2, layers)
    for times in (0, 1, 3):
        assert_same(state.repeat(times), state.select([0] * times + [1] * times))


@both_forms
def test_join_puts_batches_one_after_the_other(layers):
    state = make_state(5, layers)
    assert_same(State.join([state.select([0]), state.select([]), state.select([1, 2, 3, 4])]), state)
    assert_same(State.join([state]), state)


def test_detach_cuts_the_graph_and_keeps_the_values():
    state = State(*(each.requires_grad_() for each in make_state()))
    assert_same(state.detach(), state)
    assert not any(each.requires_grad for each in state.detach())
    assert all(each.requires_grad for each in state)


def test_to_changes_dtype_and_device_of_both():
    state = make_state()
    assert [each.dtype for each in state.to(torch.bfloat16)] == [torch.bfloat16] * 2
    assert [each.device.type for each in state.to("meta")] == ["meta"] * 2
    assert_same(state.to(torch.float64).to(torch.float32), state)
    assert_same(state.to(device="cpu", dtype=torch.float32), state)


def test_nothing_changes_a_state_in_place():
    state = make_state()
    copy = State(*(each.clone() for each in state))
    for other in (state.select([0, 1]), state.reorder([0, 1, 2, 3]), state.repeat(1), State.join([state])):
        for each in other:
            each.zero_()
    assert_same(state, copy)


def test_a_state_prints_shapes_and_types_and_no_numbers():
    state = make_state(rows=4, dtype=torch.bfloat16)
    assert repr(state) == str(state) == "State(conv=(3, 4, 5) torch.bfloat16, x=(3, 4, 6) torch.bfloat16)"
    assert repr(State(None, 1)) == "State(conv=None, x=1)"  # as a pytree may hold it


def test_a_state_is_a_tuple_of_two_tensors_to_torch():
    state = make_state()
    leaves, spec = torch.utils._pytree.tree_flatten(state)
    assert len(leaves) == 2
    assert_same(torch.utils._pytree.tree_unflatten(leaves, spec), state)
    conv, x = state
    assert (conv is state.conv, x is state.x) == (True, True)


@both_forms
def test_what_is_saved_is_loaded_bit_for_bit(layers, tmp_path):
    for rows, dtype in itertools.product([0, 1, 4], [torch.float32, torch.float64, torch.bfloat16]):
        state = make_state(rows, layers, dtype)
        state.x.masked_fill_(state.x > 1, torch.inf)
        state.save(tmp_path / "state.safetensors")
        loaded = State.load(str(tmp_path / "state.safetensors"))
        assert_same(loaded, state)
        assert loaded.x.dtype == dtype
        assert [each.name for each in tmp_path.iterdir()] == ["state.safetensors"]


def test_a_state_that_needs_gradients_or_lies_scattered_is_saved(tmp_path):
    state = State(torch.randn(4, 3, 5).transpose(0, 1).requires_grad_(), torch.randn(6).expand(3, 4, 6))
    state.save(tmp_path / "state")
    assert_same(State.load(tmp_path / "state"), state.detach())


@pytest.mark.parametrize(
    "tensors", [{"x": torch.zeros(1)}, {"a": torch.zeros(1)}, {}, {**make_state()._asdict(), "b": torch.zeros(1)}]
)
def test_a_foreign_file_is_an_error_that_says_what_it_holds(tensors, tmp_path):
    save_file(tensors, tmp_path / "state")
    with pytest.raises(ValueError, match="is not a saved state: it must hold conv and x, and holds"):
        State.load(tmp_path / "state")
