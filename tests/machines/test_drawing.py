import os
from xml.etree import ElementTree

import pytest

from latchwork.automata import Machine

PARITY = Machine.from_table([[0, 1], [1, 0]], [[0, 1], [1, 0]])
SVG = "{http://www.w3.org/2000/svg}"


def test_the_text_for_graphviz_has_every_arrow_once():
    lines = [line.strip() for line in PARITY.to_dot().splitlines()]
    assert lines[0] == "digraph machine {"
    assert lines[-1] == "}"
    assert "start -> 0;" in lines
    assert {line for line in lines if "label=" in line} == {
        '0 -> 0 [label="0/0"];',
        '0 -> 1 [label="1/1"];',
        '1 -> 1 [label="0/1"];',
        '1 -> 0 [label="1/0"];',
    }


def test_symbols_may_have_names_and_share_an_arrow():
    text = Machine.from_table([[0, 0]], [[0, 1]]).to_dot(['a"', "b\\"])
    assert '0 -> 0 [label="a\\"/0\\nb\\\\/1"];' in text
    with pytest.raises(ValueError, match="symbol_names must be 2 names; got 1"):
        PARITY.to_dot(["a"])


@pytest.mark.parametrize("states", [1, 2, 7])
def test_without_graphviz_the_states_stand_on_a_circle(states, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    cycle = Machine.from_table([[k, (k + 1) % states] for k in range(states)], [[0, 1]] * states)
    cycle.draw(tmp_path / "cycle.svg", symbols=["<", "&"])
    picture = ElementTree.parse(tmp_path / "cycle.svg").getroot()
    assert len(picture.findall(f"{SVG}circle")) == states
    arrows = 1 if states == 1 else 2 * states  # a single arrow carries both symbols
    assert len(picture.findall(f"{SVG}path")) == arrows + 1  # and that to the start
    left, top, width, height = (float(each) for each in picture.attrib["viewBox"].split())
    for circle in picture.findall(f"{SVG}circle"):
        assert left < float(circle.attrib["cx"]) < left + width
        assert top < float(circle.attrib["cy"]) < top + height
    assert "</0" in {text.text for text in picture.findall(f"{SVG}text")} or states == 1


def test_symbols_with_one_output_are_written_together_and_neighbours_by_the_first_and_the_last():
    text = Machine.from_table([[0, 0, 0, 0, 0, 0]], [[0, 0, 0, 1, 0, 0]]).to_dot()
    assert '0 -> 0 [label="0…2, 4, 5/0\\n3/1"];' in text


def test_names_without_an_order_are_written_out():
    machine = Machine.from_table([[0, 0, 0]], [[0, 0, 0]], symbol_names=["open", "read", "close"], output_names=["ok"])
    assert '0 -> 0 [label="open, read, close/ok"];' in machine.to_dot()


def test_accepting_states_have_double_circles_and_arrows_carry_symbols_alone(monkeypatch):
    machine = Machine.from_regex("(a|b)*ab")
    text = machine.to_dot()
    assert text.count("doublecircle") == 1
    assert "/" not in text
    assert '0 -> 0 [label="b"];' in text
    monkeypatch.setenv("PATH", "")
    picture = ElementTree.fromstring(machine._repr_svg_())
    assert len(picture.findall(f"{SVG}circle")) == 3 + 1
    plain = Machine.from_table(machine.transitions, machine.outputs)
    assert "doublecircle" not in plain.to_dot()


def test_hostile_names_are_text_in_a_picture(monkeypatch):
    monkeypatch.setenv("PATH", "")
    names = ["<script>alert(1)</script>", "\x00\x1b[31m", "&" * 100]
    picture = Machine.from_table([[0, 1, 1], [1, 1, 0]], [[0, 0, 0]] * 2, symbol_names=names)._repr_svg_()
    assert "<script" not in picture
    ElementTree.fromstring(picture)  # well-formed
    assert len(picture) < 5000


def test_a_large_machine_has_no_picture_in_a_notebook():
    states = 200
    cycle = Machine.from_table([[(k + 1) % states] for k in range(states)], [[0]] * states)
    assert cycle._repr_svg_() is None


@pytest.mark.skipif(os.name != "posix", reason="the program is a shell script")
def test_a_machine_that_graphviz_cannot_place_in_time_is_an_error(tmp_path, monkeypatch):
    program = tmp_path / "dot"
    program.write_text("#!/bin/sh\nwhile true; do :; done\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("latchwork.machines.drawing.MOST_SECONDS", 0.2)
    with pytest.raises(RuntimeError, match=r"Graphviz did not place 2 states in 0\.2 s"):
        PARITY.draw(tmp_path / "parity.svg")


@pytest.mark.skipif(os.name != "posix", reason="the program is a shell script")
def test_graphviz_draws_where_it_is_installed(tmp_path, monkeypatch):
    program = tmp_path / "dot"
    program.write_text('#!/bin/sh\necho "$@"\nwhile read -r line; do echo "$line"; done\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    PARITY.draw(tmp_path / "parity.svg")
    lines = (tmp_path / "parity.svg").read_text().splitlines()
    assert lines[:2] == ["-Tsvg", "digraph machine {"]


def test_a_picture_is_an_svg(tmp_path):
    with pytest.raises(ValueError, match=r"path must end in .svg; got '.*parity.png'"):
        PARITY.draw(tmp_path / "parity.png")
