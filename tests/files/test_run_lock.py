import os
import re
import subprocess
import sys

import pytest

from latchwork.differences import differences, summary
from latchwork.run_lock import run_lock

HOLD = """
import sys
from pathlib import Path
from latchwork.run_lock import run_lock
with run_lock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    """A process that holds the lock of tmp_path."""
    words = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_folder_in_use_is_refused_with_its_name_and_its_holder(holder, tmp_path):
    message = rf"{re.escape(str(tmp_path))} is in use by process {holder.pid} on "
    for _ in range(2):  # the first try does not take the name of the holder away
        with pytest.raises(BlockingIOError, match=message), run_lock(tmp_path):
            pass


def test_the_lock_of_a_process_that_was_killed_does_not_block(holder, tmp_path):
    holder.kill()
    holder.wait()
    with run_lock(tmp_path):
        pass


def test_a_process_cannot_hold_a_lock_twice_and_can_take_it_again(tmp_path):
    message = f"in use by process {os.getpid()} on "
    for _ in range(2):
        with run_lock(tmp_path), pytest.raises(BlockingIOError, match=message), run_lock(tmp_path):
            pass


def test_a_lock_is_let_go_after_an_error(tmp_path):
    with pytest.raises(KeyError), run_lock(tmp_path):
        raise KeyError
    with run_lock(tmp_path):
        pass


def test_many_differences_are_counted_and_long_values_cut():
    lines = differences({str(n): "x" * 999 for n in range(20)}, {})
    assert len(lines) == 20
    assert summary(lines).endswith("; and 12 more")
    assert all(len(line) < 100 for line in lines)
    assert differences([1, 2], [1, 2, 3]) == ["the config is [1, 2] there and [1, 2, 3] here"]
    assert differences({"a": [1, 2]}, {"a": [1, 3]}) == ["a[1] is 2 there and 3 here"]
