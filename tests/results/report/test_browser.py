"""The report in a real browser: it draws every chart, links them, and has a page per trial."""

import csv
import io
import shutil
from collections.abc import Iterator
from dataclasses import replace

import pytest

from results.paths import SweepPaths
from results.records.notes import write_note
from results.report.sweep_data import SweepData, read_sweep_data
from results.report.sweep_page import write_report
from tests.browser import Browser
from tests.results.report.conftest import EVIL
from tests.waiting import wait_for
from tuning.search.importance import importances

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium"),
]
CHOSEN = "view.selected ? [...view.selected].sort().join() : ''"


@pytest.fixture(scope="module")
def shown(
    paths: SweepPaths, data: SweepData, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Browser, str]]:
    """A browser, and the address of the report."""
    folder = tmp_path_factory.mktemp("shown")
    write_note(paths, "t0001", f"note {EVIL}", ["keep", EVIL])
    data = read_sweep_data(paths)
    write_report(paths, replace(data, importances=importances(data)), folder / "r.html")
    address = (folder / "r.html").as_uri()
    with Browser(folder / "profile", 1440, 9000) as browser:
        yield browser, address


@pytest.fixture
def browser(shown: tuple[Browser, str]) -> Browser:
    """It has just opened the report, and drawn all charts."""
    browser, address = shown
    browser.visit("about:blank", "true")
    browser.visit(address, "document.body && document.body.dataset.plots && !wanted.size")
    return browser


def drawn(browser: Browser) -> str:
    """Titles of the sections whose chart is drawn."""
    parts = "[...document.querySelectorAll('#overview > section')]"
    has = "one.querySelector('.svg-container')"
    return str(browser.value(f"{parts}.filter(one => {has}).map(one => one.id).join(' ')"))


def test_every_chart_is_drawn_and_nothing_of_users_is_markup(browser: Browser) -> None:
    assert drawn(browser).split() == [
        "s-history",
        "s-curves",
        "s-parallel",
        "s-parameter-importance",
        "s-pair",
        "s-slices",
        "s-distribution",
        "s-rungs-and-promotions",
        "s-time-and-cost",
        "s-workers-by-trial",
    ]
    body = browser.value("document.body.innerText")
    assert "done" in body
    assert "WebGL is not supported" not in body
    assert browser.value("document.querySelectorAll('img').length") == 0
    assert browser.value("document.querySelectorAll('#contents a').length") >= 12
    assert browser.value("document.querySelectorAll('[data-attr=plotlyServerURL]').length") == 0
    columns = "getComputedStyle(get('overview')).gridTemplateColumns.split(' ').length"
    assert browser.value(columns) == 2


def test_a_row_of_the_table_selects_in_every_chart(browser: Browser) -> None:
    rows = "[...document.querySelectorAll('#s-trials tbody tr')]"
    row = f"{rows}.find(r => r.cells[0].innerText.includes('t0007'))"
    browser.value(f"{row}.cells[2].click()")
    assert browser.value(CHOSEN) == "t0007"
    assert browser.value(f"{row}.className") == "chosen"
    of_trace = "(t.selectedpoints || []).map(i => t.customdata[i])"
    picked = f"get('s-history').plot.data.flatMap(t => {of_trace}).join()"
    wait_for(lambda: browser.value(picked) == "t0007")
    wait_for(lambda: "t0007" in browser.value("get('s-curves').plot.data.map(t => t.name).join()"))
    lines = "get('s-parallel').plot.data[0].dimensions[0].values.length"
    wait_for(lambda: browser.value(lines) == 1)
    browser.value("document.dispatchEvent(new KeyboardEvent('keydown', {key: 'Escape'}))")
    assert browser.value(CHOSEN) == ""
    wait_for(lambda: browser.value(lines) == 39)


def test_a_brush_in_parallel_coordinates_selects_everywhere(browser: Browser) -> None:
    plot = "get('s-parallel').plot"
    browser.value(f"Plotly.restyle({plot}, {{'dimensions[0].constraintrange': [[-2.5, -1.5]]}})")
    low, high = 10**-2.5, 10**-1.5
    inside = f"valued().filter(r => r.params.lr >= {low} && r.params.lr <= {high}).map(r => r.id)"
    wait_for(lambda: browser.value(CHOSEN) == browser.value(f"{inside}.sort().join()") != "")
    count = browser.value("view.selected.size")
    assert 0 < count < 39
    rows = "document.querySelectorAll('#s-trials tbody tr').length"
    assert browser.value(rows) == count
    assert f"{count} of 40 trials selected" in browser.value("get('bar').innerText")
    assert browser.value(f"{plot}.data[0].line.color.length") == 39


def test_curve_of_the_winner_stands_out_wherever_it_is_ranked(browser: Browser) -> None:
    browser.value("sweep.head.winnerTrial = sweep.ranked[5].id; redrawCharts()")
    of_last = "get('s-curves').plot.data.at(-1)"
    wait_for(lambda: browser.value(f"{of_last}.name === sweep.ranked[5].id"))
    assert browser.value(f"{of_last}.line.color === sweep.head.colours.best")


def test_csv_has_the_shown_columns_and_rows_in_full(browser: Browser) -> None:
    browser.value("URL.createObjectURL = blob => { blob.text().then(t => { window.saved = t; }); }")
    browser.value("HTMLAnchorElement.prototype.click = () => {}")
    browser.value("trialTable.filter.value = 't0001'; trialTable.filter.oninput()")
    browser.value("trialTable.save()")
    wait_for(lambda: browser.value("Boolean(window.saved)"))
    (row,) = csv.DictReader(io.StringIO(browser.value("saved")))
    assert row["trial"] == "t0001"
    assert float(row["lr"]) == browser.value("sweep.trials.get('t0001').params.lr")
    assert row["opt"] == browser.value("sweep.trials.get('t0001').params.opt")
    assert "number" not in row


def test_table_sorts_filters_hides_and_pins(browser: Browser) -> None:
    table = "document.querySelector('#s-trials table')"
    first = f"{table}.tBodies[0].rows[0].cells[0].innerText.trim()"
    browser.value("[...document.querySelectorAll('#s-trials th button')][0].click()")
    assert browser.value(first) == "t0000"
    browser.value("trialTable.filter.value = 'lr>0.1 state=stopped'; trialTable.filter.oninput()")
    matches = browser.value("trialTable.found.length")
    assert matches == browser.value(
        "sweep.ranked.filter(r => r.params.lr > 0.1 && r.state === 'stopped').length"
    )
    menu = "[...document.querySelectorAll('#s-trials .menu div')]"
    column = f"{menu}.find(d => d.textContent.startsWith('%s')).querySelector('%s').click()"
    browser.value(column % ("seconds", "input"))
    assert "seconds" not in browser.value(f"{table}.tHead.innerText")
    browser.value(column % ("loss", "button"))
    assert browser.value(f"{table}.tHead.rows[0].cells[0].innerText") == "loss"
    cell = f"{table}.tBodies[0].rows[0].cells[0]"
    assert browser.value(f"getComputedStyle({cell}).position") == "sticky"
    browser.value("localStorage.clear()")


def test_a_trial_and_a_difference_have_addresses(browser: Browser) -> None:
    body = "get('detail').innerText"
    browser.value("location.hash = '#trial/t0001'")
    wait_for(lambda: "Attempts" in browser.value(body))
    for words in ("note </script>", "searched", "Checkpoints", "keep"):
        assert words in browser.value(body)
    browser.value("location.hash = '#trial/t0003'")
    wait_for(lambda: "t0003" in browser.value("get('detail').querySelector('h2').innerText"))
    assert "null" not in browser.value(body)
    wait_for(
        lambda: browser.value("document.querySelectorAll('#detail .svg-container').length") > 0
    )
    assert browser.value("get('overview').hidden") is True
    browser.value("location.hash = '#trial/t9999'")
    wait_for(lambda: "no trial t9999" in browser.value(body))
    browser.value("location.hash = '#compare/t0001,t0003'")
    wait_for(lambda: "t0001 and t0003" in browser.value(body))
    assert "differs" in browser.value(body)
    browser.value("location.hash = ''")
    wait_for(lambda: browser.value("get('overview').hidden") is False)
    assert browser.value("document.querySelectorAll('img').length") == 0
