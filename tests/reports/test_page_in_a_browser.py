"""The page of a report in headless Chromium: headers are clicked, the filter is typed into."""

import pytest
from browser import CHROMIUM, DRIVER, chromium
from record_cases import some_records, write_record

from latchwork.reports.page import make_page
from latchwork.reports.records import group_records
from latchwork.reports.report import TITLE
from latchwork.reports.tables import ablation_table, results_tables, runs_table

pytest.importorskip("selenium", reason="selenium is not installed")
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

pytestmark = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None,
    reason="Chromium and its driver are not installed: apt-get install chromium-driver",
)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A page without figures, which have tests of their own."""
    folder = tmp_path_factory.mktemp("page")
    groups = group_records([{**record, "run": str(write_record(folder, record))} for record in some_records()])
    tables = [*results_tables(groups), ablation_table(groups)]
    (folder / "page.html").write_text(
        make_page(TITLE, ["About."], "Summary.", tables, [], runs_table(groups), groups), encoding="utf-8"
    )
    return folder / "page.html"


@pytest.fixture(scope="module")
def browser():
    with chromium() as found:
        yield found


@pytest.fixture
def page(browser, path):
    browser.get(path.as_uri())
    yield browser
    assert browser.get_log("browser") == []  # no error, and nothing that could not be loaded


def heads(page, table):
    return page.find_elements(By.CSS_SELECTOR, f"#{table} thead th")


def header(page, table, name):
    return next(each for each in heads(page, table) if each.text == name)


def column(page, table, name):
    """The texts of a column in the rows that are shown."""
    rows = page.execute_script(
        "return [...document.querySelectorAll(arguments[0])].filter(row => row.offsetParent !== null)"
        ".map(row => [...row.cells].map(cell => cell.innerText))",
        f"#{table} tbody tr",
    )
    place = [each.text for each in heads(page, table)].index(name)
    return [row[place] for row in rows]


def test_a_click_on_a_header_sorts_by_value_and_a_second_one_the_other_way(page):
    assert column(page, "latching", "Published") == ["✓ 100", "52.3 ± 2.3", "✓ 100", "40.4 ± 0.2"]
    for order, expected in [
        ("ascending", ["40.4 ± 0.2", "52.3 ± 2.3", "✓ 100", "✓ 100"]),
        ("descending", ["✓ 100", "✓ 100", "52.3 ± 2.3", "40.4 ± 0.2"]),
    ]:
        head = header(page, "latching", "Published")
        head.click()
        assert head.get_attribute("aria-sort") == order
        assert column(page, "latching", "Published") == expected


def test_whole_rows_move_and_only_one_header_is_marked(page):
    header(page, "latching", "Published").click()
    header(page, "latching", "Ours").click()
    assert column(page, "latching", "Model") == ["slstm-s", "mamba-s", "minmax-s", "minmax-s"]
    assert len(page.find_elements(By.CSS_SELECTOR, "#latching [aria-sort]")) == 1


def test_numbers_inside_words_sort_by_value(page):
    header(page, "latching", "Task").click()
    assert column(page, "latching", "Task") == ["latching(4)"] * 2 + ["latching(16)"] * 2


def test_what_is_missing_comes_last_both_ways(page):
    for _ in range(2):
        header(page, "ablation", "Paper").click()
        assert column(page, "ablation", "Paper") == ["10 of 10", "–"]


def test_a_header_is_reached_and_pressed_with_the_keyboard(page):
    page.find_element(By.ID, "filter").send_keys(Keys.TAB)
    for _ in range(3):  # the columns' box, what the columns say, the table, which scrolls by itself
        page.switch_to.active_element.send_keys(Keys.TAB)
    page.switch_to.active_element.send_keys(Keys.ENTER)
    assert header(page, "latching", "Task").get_attribute("aria-sort") == "ascending"


def test_secondary_columns_are_shown_when_they_are_asked_for(page):
    names = [each.text for each in heads(page, "latching") if each.is_displayed()]
    assert names == ["Task", "Model", "Ours", "Published", "Constant", "Validation", "Parameters"]
    page.find_element(By.ID, "more").click()
    assert all(each.is_displayed() for each in heads(page, "latching"))


def test_a_table_that_is_too_wide_says_that_it_goes_on(page):
    def hints():
        return [each.is_displayed() for each in page.find_elements(By.CLASS_NAME, "hint")]

    assert not any(hints())
    page.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 400, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    )
    page.execute_script("widen()")
    assert all(hints())
    page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_typing_into_the_filter_hides_rows_without_all_of_its_words(page):
    box = page.find_element(By.ID, "filter")
    box.send_keys("Latching minmax")
    assert column(page, "latching", "Model") == ["minmax-s", "minmax-s"]
    assert column(page, "runs", "Experiment") == ["latching-4/minmax-s"] * 3 + ["latching-16/minmax-s"]
    assert page.find_element(By.ID, "shown").text == "6 of 23 rows"
    shown = [each.text for each in page.find_elements(By.CSS_SELECTOR, "#manifests details") if each.is_displayed()]
    assert len(shown) == 4
    box.send_keys(Keys.CONTROL, "a")
    box.send_keys(Keys.NULL, Keys.BACKSPACE)
    assert len(column(page, "runs", "Experiment")) == len(some_records())
    assert page.find_element(By.ID, "shown").text == ""


def test_enter_in_the_filter_does_not_leave_the_page(page, path):
    page.find_element(By.ID, "filter").send_keys("mamba", Keys.ENTER)
    assert page.current_url == path.as_uri()
    assert column(page, "latching", "Model") == ["mamba-s"]


def test_a_manifest_opens_with_a_click(page):
    details = page.find_element(By.CSS_SELECTOR, "#manifests details")
    assert "0123456789abcdef" not in details.text
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", details)
    details.find_element(By.TAG_NAME, "summary").click()
    assert "0123456789abcdef" in details.text


@pytest.mark.parametrize("width", [320, 1400])
def test_the_page_itself_never_scrolls_sideways(page, width):
    page.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    )
    assert page.execute_script("return document.documentElement.scrollWidth") <= width
    page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_the_page_is_light_or_dark_as_the_reader_prefers(page):
    seen = {}
    for scheme in ("light", "dark"):
        feature = {"name": "prefers-color-scheme", "value": scheme}
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        seen[scheme] = page.find_element(By.TAG_NAME, "body").value_of_css_property("background-color")
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert seen == {"light": "rgba(255, 255, 255, 1)", "dark": "rgba(13, 17, 23, 1)"}
