"""The self-check command."""

import subprocess
import sys

import pytest
import torch
from typer.testing import CliRunner

from latchwork import selfcheck
from latchwork.cli.main import app
from latchwork.ops import dispatch
from latchwork.ops.cpu import kernel, temporal
from latchwork.ops.torch import scan as torch_scan

KERNELS = {  # what of the C++ kernel does nothing: the operation that is found wrong
    "latchwork_forward": "scan",
    "latchwork_backward": "scan of degree n",
    "latchwork_compose": "composition of steps",
    "latchwork_move": "selection",
    "latchwork_move_back": "transformation",
    "latchwork_choose": "choice",
    "latchwork_choose_back": "choice",
    "latchwork_layer_forward": "layer before its recurrence",
    "latchwork_layer_backward": "layer from its recurrence on",
    "latchwork_head": "head and loss",
    "latchwork_best": "head and loss",
    "latchwork_matvec": "int8 matrix times vectors",
    "latchwork_latch": "temporal latch",
    "latchwork_latch_back": "temporal latch",
    "latchwork_window": "temporal window",
    "latchwork_window_back": "temporal window",
    **{f"latchwork_{each}": "baselines" for each in ("linear", "feedforward")},
    **{
        f"latchwork_{each}{back}": "baselines"
        for each in ("mamba_mixer", "gru", "attention", "slstm", "mlstm", "mlstm_mixer")
        for back in ("", "_back")
    },
}


def only(monkeypatch, *operations):
    """Leave these operations to be checked."""
    monkeypatch.setattr(selfcheck, "OPERATIONS", {name: selfcheck.OPERATIONS[name] for name in operations})


def test_python_m_latchwork_check_reports_every_operation_and_backend_and_exits_with_0():
    result = subprocess.run([sys.executable, "-m", "latchwork", "check"], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    for table in dispatch.BACKENDS.values():
        assert all(name in result.stdout for name in table)
    for name in selfcheck.OPERATIONS:
        assert name.split()[0] in result.stdout


@pytest.mark.skipif(kernel.MISSING is not None, reason=str(kernel.MISSING))
@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_that_does_nothing_is_found(name, monkeypatch):
    for module, function in ((kernel, "call"), (temporal, "_call")):
        run = getattr(module, function)
        monkeypatch.setattr(module, function, lambda each, *a, run=run: 0 if each == name else run(each, *a))
    only(monkeypatch, KERNELS[name])
    found = {report.backend: report.wrong for report in selfcheck.check_backends()}
    assert found.pop("cpu")
    assert not any(found.values())


def test_a_wrong_kernel_is_named_and_the_command_exits_with_1(monkeypatch):
    right = torch_scan.forward
    monkeypatch.setattr(torch_scan, "forward", lambda *arguments: right(*arguments) + 1)
    only(monkeypatch, "scan", "temporal window")
    result = CliRunner().invoke(app, ["check"])
    assert result.exit_code == 1
    assert "wrong: scan (torch)\n" in result.stdout


def test_without_the_kernel_the_check_says_why_and_the_torch_path_serves(monkeypatch):
    monkeypatch.setattr(kernel, "MISSING", "the package was installed without its C++ kernel")
    only(monkeypatch, "scan")
    reports = {report.backend: report for report in selfcheck.check_backends()}
    assert reports["cpu"].missing == "the package was installed without its C++ kernel"
    assert reports["torch"].missing is None
    assert dispatch.choose("scan", "auto", torch.zeros(1, 1, 1)) == "torch"
