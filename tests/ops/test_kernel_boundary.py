"""Where Python and the C++ kernel meet: both describe the same, memory may run out, the instruction set is as asked."""

import ctypes
import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from scan_cases import make_case, run, tied

from latchwork import MinMaxLayer, MinMaxNeuron, minmax_scan
from latchwork.modules import BasicConv, FeedForward
from latchwork.ops.choice import choose_rows
from latchwork.ops.cpu import abi, scan
from latchwork.ops.cpu import kernel as cpu
from latchwork.ops.cross_entropy import linear_best, linear_cross_entropy
from latchwork.ops.matvec import int8_linear, linear
from latchwork.ops.moves import selection_scan

ROOT = Path(__file__).parents[2]
CSRC = ROOT / "src" / "latchwork" / "csrc"
pytestmark = pytest.mark.skipif(cpu.MISSING is not None, reason=str(cpu.MISSING))


def in_header(pattern):
    return re.findall(pattern, (CSRC / "abi.h").read_text(), re.MULTILINE)


def test_python_mirrors_every_structure_of_the_header_in_its_size():
    assert in_header(r"EACH\((\w+)\)") == in_header(r"struct (\w+) {") == [each.__name__ for each in abi.STRUCTURES]
    for each in abi.STRUCTURES:
        assert cpu.library().latchwork_size(each.__name__.encode()) == ctypes.sizeof(each)
    assert cpu.library().latchwork_size(b"Unknown") == -1


def test_a_kernel_whose_structures_have_other_sizes_is_refused_and_not_replaced(monkeypatch):
    class Problem(ctypes.Structure):
        _fields_ = (*abi.Problem._fields_, ("more", ctypes.c_int64))

    monkeypatch.setattr(abi, "STRUCTURES", (abi.Rows, Problem))
    monkeypatch.setattr(cpu, "_loaded", cpu._load())
    with pytest.raises(RuntimeError, match="the size of its structure Problem differs; reinstall the package"):
        run(make_case((2, 3, 5)), "auto")
    monkeypatch.setattr(abi, "INTERFACE", abi.INTERFACE + 1)
    monkeypatch.setattr(cpu, "_loaded", cpu._load())
    with pytest.raises(RuntimeError, match="its interface differs; reinstall the package"):
        cpu.isa()


USE_THE_KERNEL = """
import torch
from latchwork.ops.cpu import kernel, scan
r = torch.zeros(1, 1, 1)
try:
    scan.forward(r, r, r[0], None, None)
    print(kernel.isa())
except RuntimeError as error:
    print(error)
"""


def with_isa(name):
    done = subprocess.run(
        [sys.executable, "-c", USE_THE_KERNEL],
        env={**os.environ, "LATCHWORK_ISA": name},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.mark.slow
def test_an_unknown_instruction_set_is_an_error_that_lists_those_there_are():
    found = with_isa("avx1024")
    assert re.fullmatch(r"LATCHWORK_ISA must be one of (\w+, )*baseline, which run .*; got 'avx1024'", found)
    assert cpu.isa() in found
    assert with_isa("") == cpu.isa()  # as where it is not set


def test_the_processor_is_asked_for_every_feature_that_the_objects_are_compiled_with():
    flags = dict(re.findall(r"set\(FLAGS_(\w+) (.*)\)", (ROOT / "CMakeLists.txt").read_text()))
    body = (CSRC / "dispatch.cpp").read_text().split("bool runs_here", 1)[1].split("}", 1)[0]
    both, wide = body.split('"avx512"')
    asked = {name: re.findall(r'supports(?:\("|_)(\w+)', text) for name, text in (("avx2", both), ("avx512", wide))}
    assert "return avx2 &&" in wide
    asked["avx512"] += asked["avx2"]
    assert set(flags) == set(asked)
    for name, given in flags.items():
        assert {flag.removeprefix("-m") for flag in given.split()} <= set(asked[name])


NEGATIVE = {  # each as (function, tensors that may be views with the sign turned)
    "linear": (linear, [torch.ones(2, 128), torch.ones(130, 128), torch.ones(130)]),
    "int8_linear": (
        lambda x, scale, bias: int8_linear(x, torch.ones(130, 128, dtype=torch.int8), scale, bias),
        [torch.ones(2, 128), torch.ones(130, 1), torch.ones(130)],
    ),
    "linear_cross_entropy": (
        lambda hidden, weight: linear_cross_entropy(hidden, weight, torch.zeros(3).long()),
        [torch.rand(3, 8), torch.rand(5, 8)],
    ),
    "minmax_scan": (
        lambda *given: minmax_scan(*given, backend="cpu"),
        [torch.rand(2, 9, 5), torch.rand(2, 9, 5), torch.rand(5)],
    ),
}


@pytest.mark.parametrize("name", NEGATIVE)
def test_a_view_with_the_sign_turned_is_read_as_what_it_is(name):
    """torch turns the sign of such a view when it reads it; in memory the numbers are the others."""
    f, given = NEGATIVE[name]
    for index in range(len(given)):
        turned = [torch._neg_view(each) if i == index else each for i, each in enumerate(given)]
        torch.testing.assert_close(f(*turned), f(*(each.clone() for each in turned)))


def test_a_gradient_with_the_sign_turned_is_read_as_what_it_is():
    layer = MinMaxLayer(conv=BasicConv(7), ffn=FeedForward(7, act_fn="relu"), neuron=MinMaxNeuron(7, 5)).eval()
    u = torch.randn(2, 40, 7, requires_grad=True)
    grad = torch._neg_view(torch.randn(2, 40, 7))
    found, expected = (torch.autograd.grad(layer(u)[0], u, each)[0] for each in (grad, grad.clone()))
    torch.testing.assert_close(found, expected)


def test_a_scale_that_is_not_one_number_a_row_is_not_read_beyond_its_end():
    x, weight = torch.ones(2, 128), torch.ones(130, 128, dtype=torch.int8)
    torch.testing.assert_close(int8_linear(x, weight, torch.ones(1)), torch.full((2, 130), 128.0))
    with pytest.raises(RuntimeError, match="size of tensor"):
        int8_linear(x, weight, torch.ones(130))


def make_work():
    """A function that calls every entry point of the kernel, most of them with more threads than one."""
    scans = [make_case(shape, tied, reset="random") for shape in [(2, 300, 40), (2, 40, 100, 3), (1, 4200, 5)]]
    choice, weights = torch.randint(3, (2, 60, 60, 3)), torch.rand(2, 60, 60, 3, 3)
    layer = MinMaxLayer(conv=BasicConv(7), ffn=FeedForward(7, act_fn="relu"), neuron=MinMaxNeuron(7, 5)).eval()
    u, hidden, weight = torch.randn(2, 400, 7), torch.randn(600, 8), torch.randn(9, 8)
    targets = torch.randint(9, (600,))

    def grads(y, *leaves):
        return [y.detach(), *torch.autograd.grad(y.sum(), leaves)]

    def work():
        found = [each for case in scans for each in run(case, "cpu", torch.ones_like(case["s"]))[1].values()]
        found += itertools.chain.from_iterable(scan.compose(case["r"], case["s"], None, None) for case in scans)
        leaf = weights.clone().requires_grad_()
        found += grads(selection_scan(leaf, choice, torch.rand(60, 3), backend="cpu").square(), leaf)[1:]
        found += grads(choose_rows(leaf, backend="cpu")[0].square(), leaf)
        found += grads(layer(u)[0], *layer.parameters())
        leaves = hidden.clone().requires_grad_(), weight.clone().requires_grad_()
        found += grads(linear_cross_entropy(*leaves, targets), *leaves)
        found.append(linear_best(hidden, weight))
        found.append(linear(torch.ones(1, 256), torch.ones(256, 256)))
        return found

    return work


def test_where_there_is_no_memory_every_entry_point_raises_and_goes_on_afterwards():
    torch.set_num_threads(2)
    work, named = make_work(), set()
    torch.manual_seed(1)
    expected = work()
    fail = cpu.library().latchwork_fail_allocation
    fail.restype = ctypes.c_int64
    for after in itertools.count():
        torch.manual_seed(1)
        fail(ctypes.c_int64(after))
        try:
            found = work()
            break
        except MemoryError as error:
            named.add(re.search(r"latchwork_(\w+) could not allocate", str(error))[1])
        finally:
            left = fail(ctypes.c_int64(-1))
    assert left >= 0, "an allocation failed and no error was raised"
    assert named == set(in_header(r"^ +EACH\(isa, (\w+),")) - {"matvec", "monitor"}, "those need none"
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


MANY = torch.Size((300, 1000))  # numbers of a large tensor


def idle(most=1 << 60):
    return cpu.library().latchwork_idle_bytes(ctypes.c_int64(most))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_a_large_tensor_takes_the_memory_of_one_that_is_gone_and_of_no_other(dtype):
    like, shape = torch.zeros((), dtype=dtype), torch.Size((3, 2, 200_000))
    assert idle(0) == 0
    first, second = (cpu.empty(shape, like).fill_(value) for value in (1, 2))
    assert first.shape == shape
    assert first.dtype == dtype
    assert first.is_contiguous()
    address, part = first.data_ptr(), first[2, 1]
    del first
    assert idle() == 0, "a view of it is there"
    assert (part == 1).all()
    del part
    assert idle() == shape.numel() * like.element_size()
    third = cpu.empty(torch.Size((1_000_000,)), like).fill_(3)
    assert third.data_ptr() == address
    assert (second == 2).all()
    assert idle() == 0


def test_what_waits_is_bounded_and_goes_back_where_it_does_not_fit(monkeypatch):
    like, bytes_of_one = torch.zeros(()), 4 * MANY.numel()
    idle(0)
    monkeypatch.setattr(cpu, "KEPT", 3 * bytes_of_one)
    tensors = [cpu.empty(MANY, like) for _ in range(5)]
    addresses = [each.data_ptr() for each in tensors]
    while tensors:
        del tensors[0]
    assert idle() == 3 * bytes_of_one
    kept = cpu.empty(MANY, like)
    assert kept.data_ptr() in addresses[2:], "the oldest went first"
    other = cpu.empty(torch.Size((5 * MANY.numel(),)), like)
    assert idle() == 0, "two that are too small went back before one that is larger came"
    del kept, other


def test_where_there_is_no_memory_a_large_tensor_is_an_error():
    with pytest.raises(MemoryError, match=r"no memory for a tensor of shape \(\d+,\) and torch.float32"):
        cpu.empty(torch.Size((1 << 60,)), torch.zeros(()))
