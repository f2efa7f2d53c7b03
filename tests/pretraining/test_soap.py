"""SOAP: as a package has it, block by block, and in whatever basis the matrix is written."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pytorch_optimizer import SOAP

from latchwork.pretraining import soap
from latchwork.pretraining.soap import BLOCK, FLOOR, TURN, Soap, blocks_of, cut, join, weigh

POWERS = (0.5, 0.75)


def make_soap(*matrices, lr=0.02, weight_decay=0.0, power=0.5):
    group = {"params": list(matrices), "momentum": 0.95, "rate": 1.0, "power": power, "decays": True}
    return Soap([group], lr=lr, betas=(0.9, 0.98), weight_decay=weight_decay)


def train(optimizer, matrices, gradients):
    for step in gradients:
        for each, gradient in zip(matrices, step, strict=True):
            each.grad = gradient.clone()
        optimizer.step()


def draw(*shape, steps=3 * TURN + 2, seed=0):
    return torch.randn(steps, *shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("shape", [(24, 40), (40, 24), (1, 7), (5, 1), (BLOCK, 3)])
def test_it_steps_as_a_package_does(shape):
    gradients = draw(*shape)
    ours, theirs = (torch.nn.Parameter(torch.ones(shape)) for _ in range(2))
    train(make_soap(ours), [ours], [[each] for each in gradients])
    peer = SOAP([theirs], lr=0.02, betas=(0.95, 0.98), weight_decay=0.0, precondition_frequency=TURN)
    train(peer, [theirs], [[each] for each in gradients])
    moved = (1 - theirs).norm()
    assert moved > 0.02
    assert (ours - theirs).norm() < 1e-3 * moved


@given(rows=st.integers(1, 2 * BLOCK + 3), columns=st.integers(1, 2 * BLOCK + 3))
@settings(max_examples=30)
def test_what_is_cut_is_joined_again(rows, columns):
    matrix = torch.arange(rows * columns, dtype=torch.float32).view(rows, columns)
    blocks = cut(matrix)
    assert max(blocks.shape[1:]) <= BLOCK
    assert blocks.sum() == pytest.approx(float(matrix.double().sum()), rel=1e-4)
    assert torch.equal(join(blocks, matrix.shape), matrix)


def test_blocks_are_few_and_even():
    for size in range(1, 4 * BLOCK):
        length, many = blocks_of(size)
        assert length <= BLOCK
        assert (many - 1) * BLOCK < size <= many * length < size + many


@pytest.mark.parametrize("power", POWERS)
def test_each_block_of_a_long_matrix_steps_by_itself(power, monkeypatch):
    gradients = draw(12, 8)
    parts = [[torch.nn.Parameter(torch.zeros(4, 4)) for _ in range(2)] for _ in range(3)]
    flat = [each for row in parts for each in row]
    alone = make_soap(*flat, power=power)
    train(alone, flat, [[b for row in each.split(4) for b in row.split(4, 1)] for each in gradients])
    monkeypatch.setattr(soap, "BLOCK", 4)
    whole = torch.nn.Parameter(torch.zeros(12, 8))
    train(make_soap(whole, power=power), [whole], [[each] for each in gradients])
    joined = torch.cat([torch.cat([each.detach() for each in row], 1) for row in parts])
    torch.testing.assert_close(whole.detach(), joined, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("power", POWERS)
def test_the_zeros_at_the_end_of_a_block_change_nothing(power, monkeypatch):
    gradients = draw(7, 3)
    last = torch.nn.Parameter(torch.zeros(3, 3))
    train(make_soap(last, power=power), [last], [[each[4:]] for each in gradients])
    monkeypatch.setattr(soap, "BLOCK", 4)  # blocks of four rows and of three
    whole = torch.nn.Parameter(torch.zeros(7, 3))
    train(make_soap(whole, power=power), [whole], [[each] for each in gradients])
    torch.testing.assert_close(whole.detach()[4:], last.detach(), atol=1e-5, rtol=1e-4)


@given(seed=st.integers(0, 2**32), power=st.sampled_from(POWERS))
@settings(max_examples=20, deadline=None)
def test_in_another_basis_it_goes_the_same_way(seed, power):
    noise = torch.Generator().manual_seed(seed)
    left, right = (torch.linalg.qr(torch.randn(5, 5, generator=noise)).Q for _ in range(2))
    gradients = draw(5, 5, seed=seed) + 2 * torch.eye(5)  # where a gradient is singular, its basis is not one alone
    one, other = (torch.nn.Parameter(torch.zeros(5, 5)) for _ in range(2))
    train(make_soap(one, power=power), [one], [[each] for each in gradients])
    train(make_soap(other, power=power), [other], [[left @ each @ right] for each in gradients])
    moved = one.detach().norm()
    assert (left @ one.detach() @ right - other.detach()).norm() < 0.02 * moved


@given(power=st.floats(0.05, 1), rows=st.integers(1, 9), columns=st.integers(1, 9), seed=st.integers(0, 2**32))
@settings(max_examples=50, deadline=None)
def test_a_power_divides_by_that_of_the_squares_and_keeps_the_length(power, rows, columns, seed):
    noise = torch.Generator().manual_seed(seed)
    mean = torch.randn(2, rows, columns, generator=noise)
    squares = torch.rand(2, rows, columns, generator=noise) + 0.5  # none below the floor
    found = weigh(mean / squares.sqrt(), squares.sqrt(), power)
    for each, by, one in zip(mean, squares, found, strict=True):
        expected = each / by**power
        torch.testing.assert_close(one / one.norm(), expected / expected.norm(), atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(one.norm(), (each / by.sqrt()).norm())


def test_a_deviation_below_the_floor_weighs_no_more_than_one_at_it():
    deviation = torch.full((1, 1, 1000), 1.0)
    deviation[..., 0], deviation[..., 1], deviation[..., 2] = FLOOR * deviation.mean(), 1e-3, 0.0
    weighed = weigh(torch.ones_like(deviation), deviation, power=0.75)[0, 0]
    torch.testing.assert_close(weighed[1:3], weighed[:1].expand(2), rtol=2e-3, atol=0)
    torch.testing.assert_close(weighed[0] / weighed[3], torch.tensor(FLOOR**-0.5), rtol=2e-3, atol=0)


@pytest.mark.parametrize("power", POWERS)
def test_the_first_step_only_looks_and_no_gradient_moves_nothing(power):
    matrix = torch.nn.Parameter(torch.ones(3, 4))
    optimizer = make_soap(matrix, power=power)
    train(optimizer, [matrix], [[draw(3, 4)[0]]])
    assert torch.equal(matrix.detach(), torch.ones(3, 4))
    silent = torch.nn.Parameter(torch.ones(3, 4))
    train(make_soap(silent, power=power), [silent], [[torch.zeros(3, 4)]] * (TURN + 2))
    assert torch.equal(silent.detach(), torch.ones(3, 4))


def test_it_decays():
    matrix = torch.nn.Parameter(torch.ones(3, 4))
    train(make_soap(matrix, weight_decay=0.5), [matrix], [[torch.zeros(3, 4)]] * 3)
    torch.testing.assert_close(matrix.detach(), torch.full((3, 4), (1 - 0.02 * 0.5) ** 3))


def test_its_basis_stays_orthonormal():
    matrix = torch.nn.Parameter(torch.zeros(30, 20))
    optimizer = make_soap(matrix)
    train(optimizer, [matrix], [[each] for each in draw(30, 20, steps=20 * TURN)])
    for side, size in (("left", 30), ("right", 20)):
        (basis,) = optimizer.state[matrix][f"basis_{side}"]
        torch.testing.assert_close(basis.T @ basis, torch.eye(size), atol=1e-5, rtol=0)
