"""The self-check command."""

from __future__ import annotations

import subprocess
import sys

import torch
from typer.testing import CliRunner

from latchwork.cli.main import app
from latchwork.ops import dispatch
from latchwork.ops.cpu import kernel
from latchwork.ops.selfcheck import check_backends
from latchwork.ops.torch import scan as torch_scan


def test_python_m_latchwork_check_reports_every_backend_and_exits_with_0() -> None:
    result = subprocess.run([sys.executable, "-m", "latchwork", "check"], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    for name in dispatch.BACKENDS["scan"]:
        assert name in result.stdout


def test_a_wrong_backend_is_reported_and_exits_with_1(monkeypatch) -> None:
    right = torch_scan.forward
    monkeypatch.setattr(torch_scan, "forward", lambda *arguments: right(*arguments) + 1)
    result = CliRunner().invoke(app, ["check"])
    assert result.exit_code == 1
    assert "wrong" in result.stdout


def test_without_the_kernel_the_check_says_why_and_the_torch_path_serves(monkeypatch) -> None:
    monkeypatch.setattr(kernel, "MISSING", "the package was installed without its C++ kernel")
    reports = {report.backend: report for report in check_backends()}
    assert reports["cpu"].missing == "the package was installed without its C++ kernel"
    assert reports["torch"].missing is None
    assert dispatch.choose("scan", "auto", torch.zeros(1, 1, 1)) == "torch"
