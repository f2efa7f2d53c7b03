"""Networks here are small: with one thread they are ten times as fast as with some that wait for each other."""

import pytest
import torch


@pytest.fixture(autouse=True)
def _one_thread(_settings):
    torch.set_num_threads(1)
