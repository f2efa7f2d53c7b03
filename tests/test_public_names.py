"""What the package offers at its top level."""

import pytest

import latchwork


def test_there_are_about_a_dozen_names_in_order():
    assert latchwork.__all__ == sorted(latchwork.__all__)
    assert 10 <= len(latchwork.__all__) <= 14


@pytest.mark.parametrize("name", latchwork.__all__)
def test_each_name_is_documented_with_an_example(name):
    assert ">>>" in getattr(latchwork, name).__doc__
