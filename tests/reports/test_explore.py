"""The page of `latchwork explore`: its data in Python, and its steps, words and keys in headless Chromium."""

import json
import random
import re

import numpy
import pytest
import torch
from browser import CHROMIUM, DRIVER, chromium
from typer.testing import CliRunner

from latchwork import zoo
from latchwork.automata import Machine, compile
from latchwork.cli.main import app
from latchwork.models import MinMaxRNC_LM, MinMaxRNCConfig, MinMaxRNCLMConfig
from latchwork.reports.explore import make_page, network_subject, regex_subject, zoo_subject
from latchwork.reports.explore.subject import run
from latchwork.reports.explore.weights import network_data
from latchwork.tasks import make_task

DATA = re.compile(r'<script type="application/json" id="data">(.*?)</script>', re.DOTALL)
CONFIGS = {  # every kind of part at least once
    "scalars": {},
    "levels": {"levels": 4},
    "matrices": {"degree": 3, "levels": 3},
    "selection": {"degree": 4, "reset_form": "selection", "conv_type": "gated"},
    "transformation": {"degree": 2, "reset_form": "transformation", "norm": "rmsnorm", "ffn_act_fn": "gelu"},
    "extra units": {"extra_units": ((2, 3),), "ffn_type": "basic", "ffn_act_fn": "swish"},
    "after the layers": {"use_postlayers_ffn": True, "ffn_act_fn": "selu", "postlayers_norm": "none"},
    "relu^2": {"ffn_act_fn": "relu^2", "norm": "none", "train_init": True},
    "sigmoid": {"ffn_act_fn": "sigmoid", "output_gate": False},
}
REGEXES = [
    "a(b|c)*d", "(ab)*", "a", "[a-c]{2,3}", "(a|b)*abb", "a?b+|c{2}", r"\d+(x\d)?", "[^a]*a", "a{0}b", "(?:ab|)c.",
    r"\*\(a", "(a*)*b", "a{,2}b{2,}", "x|", r"[\]a\-]+b",
]  # fmt: skip


def small(options):
    torch.manual_seed(0)
    config = MinMaxRNCConfig(d_model=8, n_layers=2, d_state=12, s_r_init="kaiming", **options)
    model = MinMaxRNC_LM(7, MinMaxRNCLMConfig(backbone=config, tie_weights=False)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def words(symbols, rows=6, length=40):
    return numpy.random.default_rng(1).integers(0, symbols, (rows, length)).tolist()


def data(page):
    return json.loads(DATA.search(page)[1])


def test_a_page_is_one_file_and_no_name_can_end_its_data():
    hostile = "</script><script>alert(1)</script><!--&amp;"
    page = make_page([{**zoo_subject("parity"), "name": hostile}], title=hostile, word=hostile)
    assert hostile not in page
    assert page.count("<script") == 2
    assert data(page)["subjects"][0]["name"] == data(page)["word"] == hostile
    assert not re.search(r"""(src|href)=["'](?!data:,)|https?://(?!www\.w3\.org/2000/svg)|@import|url\((?!#)""", page)


def test_a_network_of_the_zoo_comes_with_its_proof_and_the_words_that_training_got_wrong():
    subject = zoo_subject("s3")
    assert subject["verdict"]["kind"] == "proved"
    assert subject["words"] == [{"tokens": [1, 2, 1, 2, 1, 4], "why": "wrong during training"}]
    assert subject["symbols"][1] == "021"


def test_a_wrong_network_comes_with_its_counterexample():
    task = make_task("regular(a*b, ab)")
    wrong = compile(Machine.from_regex("a*b|aab*", "ab"))
    subject = network_subject(wrong, "wrong", task)
    assert subject["verdict"]["kind"] == "wrong"
    assert subject["words"] == [{"tokens": [0, 0], "why": "counterexample"}]


def test_a_network_without_a_task_is_shown_beside_the_machine_that_it_is():
    subject = network_subject(compile(Machine.from_regex("(ab)*", "ab")), "no task")
    assert subject["whose"] == "network"
    assert len(subject["machine"]["transitions"]) == 3


def test_a_large_network_is_refused_by_its_size(monkeypatch):
    monkeypatch.setattr("latchwork.reports.explore.weights.MOST_PARAMETERS", 100)
    with pytest.raises(ValueError, match="model must have at most 100 parameters"):
        network_data(zoo.load("parity"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["s3", "--regex", "a"], "either MODEL or --regex"),
        (["--task", "parity"], "is for a MODEL"),
        (["s3", "--alphabet", "ab"], "is for --regex"),
        (["no_such"], "no network of the zoo"),
        (["--regex", "a("], ""),
    ],
)
def test_the_command_says_what_is_wrong(arguments, message, tmp_path):
    result = CliRunner().invoke(app, ["explore", *arguments, "--out", str(tmp_path / "page.html")])
    assert result.exit_code == 2
    assert message in result.stderr
    assert not (tmp_path / "page.html").exists()


def test_the_command_writes_the_page_and_prints_where_it_is(tmp_path):
    out = tmp_path / "page.html"
    result = CliRunner().invoke(app, ["explore", "--regex", "a(b|c)*", "--word", "abcb", "--out", str(out)])
    assert (result.exit_code, result.stdout) == (0, f"{out}\n")
    found = data(out.read_text())
    assert found["word"] == "abcb"
    assert found["subjects"][0]["verdict"]["kind"] == "proved"


in_a_browser = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None,
    reason="Chromium and its driver are not installed: apt-get install chromium-driver",
)


@pytest.fixture(scope="module")
def browser():
    pytest.importorskip("selenium", reason="selenium is not installed")
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("explore") / "page.html"
    subjects = [zoo_subject("latching-4"), zoo_subject("s3"), regex_subject("a(b|c)*d")]
    wrong = network_subject(compile(Machine.from_regex("a*b|aab*", "ab")), "wrong", make_task("regular(a*b, ab)"))
    path.write_text(make_page([*subjects, wrong]), encoding="utf-8")
    return path


@pytest.fixture
def page(browser, path):
    browser.get(path.as_uri())
    yield browser
    assert browser.get_log("browser") == []


def at(page, name):
    return page.find_element("id", name)


def type_word(page, text):
    page.execute_script(
        "$('word').value = arguments[0]; $('word').dispatchEvent(new Event('input'))", text
    )  # at once, not letter by letter


RUN = """
const network = new Network(arguments[0]);
return arguments[1].map(word => network.run(word).map(
  step => [step.answer, step.state.x.map(x => Array.from(x)), Array.from(step.logits)]));
"""


def both_runs(page, model, symbols):
    """Answers, states and logits: of the page, and of PyTorch."""
    asked = words(symbols)
    found = page.execute_script(RUN, network_data(model), asked)
    answers, states = run(model, asked)
    mine = torch.tensor([[step[0] for step in row] for row in found])
    x = torch.tensor([[step[1] for step in row] for row in found], dtype=torch.float64).float()
    logits = torch.tensor([[step[2] for step in row] for row in found])
    return mine, x, logits, torch.tensor(answers), states


@in_a_browser
@pytest.mark.parametrize("name", zoo.names())
def test_every_step_of_a_network_of_the_zoo_is_that_of_torch_bit_for_bit(page, name):
    model = zoo.load(name)
    mine, x, _, answers, states = both_runs(page, model, model.vocab_size)
    assert torch.equal(x, states)
    assert torch.equal(mine, answers)


@in_a_browser
@pytest.mark.parametrize("pattern", ["a(b|c)*d", "(aa)*", "(ab|ba)*", "(aaa|b)*"])
@pytest.mark.parametrize("method", ["cascade", "one_hot"])
def test_every_step_of_a_compiled_network_is_that_of_torch_bit_for_bit(page, pattern, method):
    machine = Machine.from_regex(pattern)
    mine, x, _, answers, states = both_runs(page, compile(machine, method), machine.n_symbols)
    assert torch.equal(x, states)
    assert torch.equal(mine, answers)


@in_a_browser
@pytest.mark.parametrize("options", CONFIGS.values(), ids=CONFIGS)
def test_every_kind_of_part_is_computed_as_torch_does_it(page, options):
    mine, x, logits, answers, states = both_runs(page, small(options), 7)
    assert torch.allclose(x, states, rtol=1e-4, atol=1e-4)
    first, second = logits.topk(2, -1).values.unbind(-1)
    sure = first - second > 1e-3
    assert sure.float().mean() > 0.9
    assert torch.equal(mine[sure], answers[sure])


@in_a_browser
@pytest.mark.parametrize("pattern", REGEXES)
def test_the_machine_of_an_expression_is_that_of_the_library(page, pattern):
    alphabet = "abcdx0123456789*(]-" if "." in pattern or "^" in pattern else ""
    found = page.execute_script("return regexMachine(arguments[0], arguments[1])", pattern, alphabet)
    machine = Machine.from_table(found["transitions"], found["outputs"], found["start"])
    assert machine.minimise() == Machine.from_regex(pattern, alphabet or None)


@in_a_browser
def test_random_expressions_have_the_machine_of_the_library(page):
    draw = random.Random(0)

    def expression(depth):
        if depth == 0 or draw.random() < 0.3:
            return draw.choice(["a", "b", "[ab]", "[^a]", "."])
        kind = draw.choice(["and", "or", "*", "+", "?", "{1,2}", "{2}"])
        if kind in ("and", "or"):
            return ("" if kind == "and" else "|").join(f"({expression(depth - 1)})" for _ in range(2))
        return f"({expression(depth - 1)}){kind}"

    for pattern in {expression(4) for _ in range(60)}:
        found = page.execute_script("return regexMachine(arguments[0], 'abc')", pattern)
        machine = Machine.from_table(found["transitions"], found["outputs"], found["start"])
        assert machine.minimise() == Machine.from_regex(pattern, "abc"), pattern


@in_a_browser
@pytest.mark.parametrize("pattern", ["a(", "a)", "[a", "[]", "*a", "a**", "a{3,2}", "(?=a)", "^a", "", "\\"])
def test_what_is_no_expression_gets_a_message_and_the_page_stays(page, pattern):
    page.execute_script("$('subject').value = 'regex'; choose('regex')")
    box = at(page, "pattern")
    page.execute_script("arguments[0].value = arguments[1]; chooseRegex()", box, pattern)
    assert at(page, "regex-error").text


@in_a_browser
def test_a_typed_word_is_answered_and_judged_step_by_step(page):
    type_word(page, "2 7 9 4")
    assert at(page, "status").text == "Step 4 of 4: reads 4, says 2, target 2 ✓ right"
    assert "bit for bit" in at(page, "check").text
    type_word(page, "2 7 x")
    assert at(page, "word-error").text == "“x” is no symbol here"


@in_a_browser
def test_keys_move_through_time_but_not_while_a_word_is_typed(page):
    from selenium.webdriver.common.keys import Keys

    type_word(page, "2 7 9 4")
    body = page.find_element("tag name", "body")
    for key, step in [
        (Keys.HOME, 0), (Keys.ARROW_RIGHT, 1), (Keys.ARROW_RIGHT, 2), (Keys.ARROW_LEFT, 1), (Keys.END, 4)
    ]:  # fmt: skip
        body.send_keys(key)
        assert at(page, "status").text.startswith(f"Step {step} of 4")
    at(page, "word").send_keys(Keys.HOME)
    assert at(page, "status").text.startswith("Step 4 of 4")
    body.click()
    body.send_keys(Keys.SPACE)
    assert at(page, "play").get_attribute("aria-label") == "Pause"
    body.send_keys(Keys.SPACE)
    assert at(page, "play").get_attribute("aria-label") == "Play"


@in_a_browser
def test_units_say_set_reset_or_hold_and_the_machine_has_one_current_state(page):
    type_word(page, "2 7 9 4")
    said = {each.text for each in page.find_elements("css selector", "#units .action")}
    assert said <= {"▲ set", "▼ reset", "· hold"}
    assert len(page.find_elements("css selector", ".state.current")) == 1
    assert page.find_element("css selector", ".state.current text").text == "2"
    assert len(page.find_elements("css selector", ".arrow.lit")) == 1


@in_a_browser
def test_a_counterexample_is_shown_at_once_and_can_be_replayed_and_found(page):
    page.execute_script("choose(3)")
    assert at(page, "word").get_attribute("value") == "aa"
    assert at(page, "status").text.endswith("✗ wrong")
    type_word(page, "b")
    page.find_element("css selector", "#replays button").click()
    assert at(page, "status").text.endswith("✗ wrong")
    type_word(page, "b")
    at(page, "hunt").click()
    assert "Wrong at the end of this word" in at(page, "word-error").text


@in_a_browser
def test_samples_are_words_of_the_task(page):
    for _ in range(20):
        at(page, "sample").click()
        word = [int(each) for each in at(page, "word").get_attribute("value").split()]
        assert word[0] < 4 <= min(word[1:])


@in_a_browser
@pytest.mark.parametrize("width", [320, 400, 1280])
def test_the_page_never_scrolls_sideways(page, width):
    page.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    )
    for place in range(4):
        page.execute_script("choose(arguments[0]); sample(60)", place)
        assert page.execute_script("return document.documentElement.scrollWidth") <= width
    page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@in_a_browser
def test_the_page_is_light_or_dark_as_preferred_and_by_its_button(page):
    def paper():
        return page.find_element("tag name", "body").value_of_css_property("background-color")

    page.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    )
    assert paper() == "rgba(14, 17, 22, 1)"
    at(page, "theme").click()
    assert paper() == "rgba(255, 255, 255, 1)"
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


@in_a_browser
def test_every_control_has_a_name(page):
    nameless = page.execute_script(
        "return [...document.querySelectorAll('button, input, select')].filter(each => each.offsetParent"
        " && !each.textContent.trim() && !each.getAttribute('aria-label') && !(each.labels && each.labels.length))"
        ".map(each => each.outerHTML)"
    )
    assert nameless == []
