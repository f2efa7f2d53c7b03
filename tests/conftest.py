"""Every test starts from one seed, finds NaN in memory it did not write, and leaves torch's settings as they were."""

import os
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import settings
from torch.utils import deterministic

ROOT = Path(__file__).parents[1]
for folder in (ROOT / "benchmarks", *sorted(each for each in (ROOT / "studies").iterdir() if each.is_dir())):
    sys.path.append(str(folder))  # scripts, not packages: found after everything else
sys.path.append(str(Path(__file__).parent / "training"))  # cases that tests in several folders use
settings.register_profile("default", deadline=None, derandomize=True, database=None, max_examples=50)
settings.register_profile("thorough", deadline=None, database=None, max_examples=1000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.fixture(autouse=True)
def _settings(request):
    threads = torch.get_num_threads()
    torch.manual_seed(0)
    if "automata" in request.path.parts:  # many small networks: threads that wait for each other take ten times as long
        torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def one_thread(_settings):
    """For many small cases: threads that wait for one another on a busy machine take longer. A test may set more."""
    torch.set_num_threads(1)


@pytest.fixture
def fresh_compiler():
    """torch.compile knows nothing of what other tests compiled, nor do they of this one's."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture(autouse=True)
def _nan_in_uninitialised_memory(monkeypatch):
    """torch.empty returns NaN. On a GPU the mode that does it forbids operations that tests may need."""
    if torch.cuda.is_available():
        yield
        return
    monkeypatch.setattr(deterministic, "fill_uninitialized_memory", True)
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(before)
