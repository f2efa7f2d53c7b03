"""Results as a person reads them: one line of text, and HTML in which everything is escaped."""

import pytest
import torch

from latchwork import MinMaxRNC_LM, MinMaxRNCLMConfig, zoo
from latchwork.automata import Counterexample, Machine, Proof, Unknown, certify, compile
from latchwork.evaluation.diagnostics import latch_report
from latchwork.tasks import make_task

HOSTILE = Machine.from_table([[0, 0]], [[0, 1]], symbol_names=["<b>", "&"], output_names=["<i>", "no"])


def test_a_proof_is_a_sentence():
    proof = certify(zoo.load("parity"), make_task("parity").machine())
    assert isinstance(proof, Proof)
    sentence = "proved: right on all words, of any length, in float32, whatever the order of its sums."
    assert str(proof).startswith(sentence)
    assert proof._repr_html_().startswith("<p><strong>proved</strong>: right on all words")


def test_a_counterexample_is_told_in_the_names_of_the_machine():
    found = certify(compile(Machine.from_regex("(ab)*", "ab")), Machine.from_regex("(ab)*|b", "ab"))
    assert isinstance(found, Counterexample)
    assert str(found) == "wrong: to 'b' it says reject, and should say accept"
    assert str(Counterexample((0, 1), 1, 0, 5, 0.1)) == "wrong: to [0, 1] it says 1, and should say 0"


def test_unknown_says_why_and_what_to_do():
    model = MinMaxRNC_LM(2, MinMaxRNCLMConfig.small(d_model=4, n_layers=1, d_state=2)).eval()
    for parameter in model.parameters():
        torch.nn.init.zeros_(parameter)
    found = certify(model, Machine.from_table([[0, 0]], [[0, 0]]))
    assert isinstance(found, Unknown)
    assert str(found).startswith("unknown: ")
    assert "; what to do: " in str(found)
    assert str(Unknown("no end", 3, 0.1, (1,), "stop", HOSTILE)) == "unknown: no end, after '&'; what to do: stop"


@pytest.mark.parametrize(
    "found", [Counterexample((0, 1), 0, 1, 5, 0.1, HOSTILE), Unknown("<b>", 1, 0.1, (0,), "<i>", HOSTILE)]
)
def test_html_is_escaped(found):
    text = found._repr_html_().removeprefix("<p><strong>").removesuffix("</p>").replace("</strong>", "")
    assert "<" not in text
    assert "&lt;b&gt;" in text


def test_a_report_and_a_state_are_tables():
    model = MinMaxRNC_LM(5, MinMaxRNCLMConfig.small(d_model=4, n_layers=2, d_state=2)).eval()
    report = latch_report(model, torch.zeros(1, 3).long())
    assert report._repr_html_().count("<tr>") == 3
    assert len(str(report).splitlines()) == 3
    html = report.state._repr_html_()
    assert "(2, 1, 4) torch.float32" in html


def test_models_and_tasks_are_one_line():
    model = MinMaxRNC_LM(20, MinMaxRNCLMConfig.small())
    assert repr(model) == "MinMaxRNC_LM(vocab_size=20, d_model=90, n_layers=2, d_state=40, 129,232 parameters)"
    assert str(model).startswith("MinMaxRNC_LM(\n  (embedding): Embedding(20, 90)\n  (backbone): MinMaxRNC(")
    assert repr(make_task("latching(4)")) == "Latching('latching(4)', vocabulary=20)"
