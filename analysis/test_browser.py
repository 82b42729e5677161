"""The report in headless Chromium: what a reader does with it, no console error, no serious finding of axe. Screenshots are kept."""

import json
import os
import re
import shutil
import time
from pathlib import Path

import pytest

from analysis import report, tables
from analysis.conftest import H100, FolderWriter, gpu_folder
from analysis.load import committed_folders, load, load_folder, runs
from analysis.models import load_evaluation
from analysis.test_devices import H100_NAME, H200_NAME, h100_folder, h200_folder
from analysis.test_layers import every_section
from analysis.test_models import written
from analysis.test_pages import with_auto
from analysis.test_report import SCRIPT, TINY, hostile

sync_api = pytest.importorskip("playwright.sync_api", reason="skipped: the Python package playwright is missing")
expect = sync_api.expect
expect.set_options(timeout=60_000)  # the machine may be busy
CHROMIUM = os.environ.get("FWHT_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="skipped: no chromium on PATH")
SHOTS = Path(os.environ.get("FWHT_SCREENSHOTS", ""))  # a folder that keeps them; ctest names one
SERIOUS = ("serious", "critical")


def eventually(check, seconds=60):
    """Tries `check` until it holds: charts are drawn when the browser finds the time. Its last failure is the test's."""
    end = time.monotonic() + seconds
    while True:
        try:
            return check()
        except AssertionError:
            if time.monotonic() > end:
                raise
        time.sleep(0.2)


@pytest.fixture(scope="module")
def chromium():
    with sync_api.sync_playwright() as playwright:
        start = {"executable_path": CHROMIUM, "args": ["--no-sandbox", "--disable-dev-shm-usage"]}
        browser = playwright.chromium.launch(**start, timeout=180_000)  # the first start reads 300 MB from the disk
        yield browser
        browser.close()


@pytest.fixture
def opened(chromium, tmp_path):
    """Opens a report, or makes one of devices first; at the end nothing may have been said to the console, and nothing fetched."""
    said: list[str] = []

    def at(given, width=1400, address="", evaluations=()):
        file = given if isinstance(given, Path) else report.write_report(given, tmp_path / "report.html", evaluations=evaluations)
        page = chromium.new_page(viewport={"width": width, "height": 900}, reduced_motion="reduce")  # a page that glides moves under a click
        page.set_default_timeout(60_000)  # the machine may be busy
        page.on("console", lambda message: said.append(message.text) if message.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: said.append(f"fetched {request.url}") if request.url.startswith(("http", "ws")) else None)
        page.goto(file.as_uri() + address)
        page.wait_for_selector("#which-answer table, main:not(:has(#which)) #how-to-read")  # the last section: a page half read is none
        return page

    yield at
    assert said == []


@pytest.fixture(scope="module")
def committed(tmp_path_factory) -> Path:
    """The report of what is committed, made once."""
    return report.write_report(report.committed_runs(committed_folders()), tmp_path_factory.mktemp("committed") / "report.html")


@pytest.fixture
def device(tmp_path):
    return load([with_auto(gpu_folder(**TINY)).write(tmp_path / "20261120T100000Z_0123456789_h200")])[0]


def explore(page):
    page.locator("#explore").evaluate("(section) => section.scrollIntoView()")
    for chart in ("by-n", "by-size"):
        page.wait_for_selector(f"#{chart} svg .mark-symbol path")
    page.wait_for_selector("#map button")
    return page


def click_until(page, target, shown, attribute, value, **how):
    """Clicks until `shown` has the value, and never after: a target that moves between press and release gets no click, as when a chart is drawn above."""

    def once():
        if shown.get_attribute(attribute) != value:  # the page changes within the click, so this click was lost
            page.click(target, **how)
        expect(shown).to_have_attribute(attribute, value, timeout=1000)

    eventually(once)


def draw_everything(page, shown=""):
    """Opens what is folded; charts and tables are drawn once they come into sight. The names of the charts, each when it is drawn."""
    page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    for part in page.locator(f"[data-chart]{shown}, [data-table]{shown}").all():
        part.scroll_into_view_if_needed()
        if name := part.get_attribute("data-chart"):
            page.wait_for_selector(f"[data-chart='{name}'] svg")
            yield name


def expect_answer(page, found) -> None:
    """My problem's answer is what tables.which found."""
    expect(page.locator("#which-answer strong")).to_have_text(found["variant"].iloc[0])
    expect(page.locator("#which-answer tbody tr td:first-child")).to_have_text(list(found["variant"]))


def drawn(page, chart="by-n") -> int:
    """Points in a chart."""
    return page.locator(f"#{chart} svg .mark-symbol path").count()


def test_a_variant_is_switched_off_and_on(opened, device):
    page = explore(opened([device]))
    before = drawn(page)
    naive = "#variants button:has-text('naive')"
    click_until(page, naive, page.locator(naive), "aria-pressed", "false")
    page.wait_for_function(f"document.querySelectorAll('#by-n svg .mark-symbol path').length < {before}")
    expect(page).to_have_url(re.compile("off=naive"))
    click_until(page, naive, page.locator(naive), "aria-pressed", "true")
    page.wait_for_function(f"document.querySelectorAll('#by-n svg .mark-symbol path').length == {before}")


def test_a_tooltip_tells_time_share_error_and_settings(opened, device):
    page = explore(opened([device]))

    def told():  # a chart that is drawn anew under a mouse at rest shows none
        page.mouse.move(0, 0)
        page.locator("#by-n svg .mark-symbol path").first.hover(force=True)
        page.wait_for_timeout(500)
        text = "".join(page.locator("#vg-tooltip-element.visible").all_inner_texts())
        assert [words for words in ("variant", "time", "of a copy", "error / one rounding", "picks", "settings") if words not in text] == []

    eventually(told)


@pytest.mark.parametrize(("dtype", "n", "rows"), [("f16", 4096, 8), ("f16", 4096, 4096), ("f16", 16, 1), ("f16", 16, 10**7)])
def test_my_problem_answers_as_which_does(opened, device, dtype, n, rows):
    page = opened([device])
    page.select_option("#which select", dtype)
    page.fill("#which input[name=n]", str(n))
    page.fill("#which input[name=rows]", str(rows))
    page.click("#which button")
    _, found = tables.which([device], dtype, n, rows)
    expect_answer(page, found)


def test_my_problem_refuses_what_was_not_measured(opened, device):
    page = opened([device])
    for n, words in (("3", "n = 3 was not measured in f16; the nearest row lengths are 16 and 4096"), ("x", "whole numbers")):
        page.fill("#which input[name=n]", n)
        page.press("#which input[name=n]", "Enter")
        expect(page.locator("#which-answer")).to_contain_text(words)


def test_filters_mean_what_they_say(opened, tmp_path):
    """ "f16" is not "bf16": the table of the view has the rows of one dtype."""
    (device,) = load([gpu_folder(**TINY | {"dtypes": ("f16", "bf16"), "sizes": (1 << 15,)}).write(tmp_path / "run")])
    page = explore(opened([device]))
    assert page.locator("#controls select[name=dtype] option").all_inner_texts() == ["f16", "bf16"]
    for dtype in ("f16", "bf16"):
        page.select_option("#controls select[name=dtype]", dtype)
        page.wait_for_selector(f"#detail caption:has-text(', {dtype}, ')")
        own = device.results[(device.results["dtype"] == dtype) & (device.results["mode"] == "replay")]
        other = tables.published()
        count = len(own) + len(other[(other["dtype"] == dtype) & (other["mode"] == "replay")])
        expect(page.locator("#view-table .count")).to_have_text(f"{count} rows")


def test_a_cell_of_the_map_leads_to_its_numbers_by_keyboard(opened, device):
    page = explore(opened([device]))
    cell = page.locator("[data-cell='16 28']")
    cell.focus()
    expect(page.locator("#tip")).to_contain_text("n 16, 2^28 elements")
    page.keyboard.press("Enter")
    page.wait_for_selector("#detail caption:has-text('n = 16, 2^28 elements')")
    expect(cell).to_have_attribute("aria-current", "true")
    expect(cell).to_be_focused()
    expect(page).to_have_url(re.compile("n=16&size=28"))


def test_a_link_leads_to_the_same_view(opened, device):
    page = explore(opened([device], address="#mode=alternating&metric=time&n=4096&size=24&off=naive+auto"))
    expect(page.locator("#controls select[name=mode]")).to_have_value("alternating")
    expect(page.locator("#controls select[name=metric]")).to_have_value("time")
    expect(page.locator("#variants button:has-text('auto')")).to_have_attribute("aria-pressed", "false")
    expect(page.locator("#detail caption")).to_contain_text("n = 4096, 2^24 elements, f16, alternating")


def test_a_table_is_sorted_searched_and_downloaded(opened, device):
    page = explore(opened([device]))
    head = "#view-table thead th:has-text('time') >> nth=0"
    for order in ("ascending", "descending"):
        click_until(page, f"{head} >> button", page.locator(head), "aria-sort", order)
    rows = report.explored(device)
    slowest = rows[(rows["mode"] == "replay") & (rows["dtype"] == "f16")]["time_us"].max()
    first = page.locator("#view-table tbody tr:not([aria-hidden]) >> nth=0").locator("td").all_inner_texts()
    assert float(first[4].split()[0]) == pytest.approx(slowest / (1 if "µs" in first[4] else 1000), rel=0.01)
    page.fill("#view-table input", "wgmma 4096")
    expect(page.locator("#view-table .count")).to_contain_text(" of ")
    assert set(page.locator("#view-table tbody tr:not([aria-hidden]) td:first-child").all_inner_texts()) <= {"wgmma", "auto"}
    click_until(page, "#theme", page.locator("html"), "data-theme", "dark")  # which draws the page anew
    expect(page.locator(head)).to_have_attribute("aria-sort", "descending")
    expect(page.locator("#view-table input")).to_have_value("wgmma 4096")
    with page.expect_download() as download:
        page.click("#view-table .tools button")
    lines = Path(download.value.path()).read_text().splitlines()
    assert lines[0].startswith("variant,operator,n,rows,time_us") and len(lines) - 1 == int(page.inner_text("#view-table .count").split()[0])


def test_no_downloaded_text_is_a_formula_of_a_spreadsheet(opened, tmp_path):
    writer = gpu_folder(**TINY)
    for row in writer.tables["results.csv"]:
        row["variant"] = {"naive": "=1+1", "wgmma": "@x"}.get(row["variant"], row["variant"])
    page = explore(opened(load([writer.write(tmp_path / "run")])))
    with page.expect_download() as download:
        page.click("#view-table .tools button")
    names = {line.split(",")[0] for line in Path(download.value.path()).read_text().splitlines()[1:]}
    assert "'=1+1" in names and "'@x" in names and not any(name.startswith(("=", "@")) for name in names)


def test_only_rows_in_sight_are_in_the_document(opened, committed):
    page = explore(opened(committed))
    assert int(page.inner_text("#view-table .count").split()[0]) > 500
    assert page.locator("#view-table tbody tr").count() < 80
    assert page.evaluate("document.querySelectorAll('*').length") < 30_000


@pytest.mark.parametrize("width", [1400, 500])
def test_the_committed_report_at_two_widths(opened, committed, width):
    """Every section is drawn, nothing sticks out, first paint within a second; screenshots to look at."""
    page = opened(committed, width)

    def paints():  # a loaded machine paints later; what is measured is our page, so the best time counts
        page.reload()
        page.wait_for_selector("#which-answer table")
        page.wait_for_function("performance.getEntriesByName('first-contentful-paint').length")
        assert page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime") < 1000

    eventually(paints)
    page.evaluate("scrollTo(0, 0)")
    keep(page, f"report_{width}_answer")
    explore(page)
    keep(page, f"report_{width}_explore")
    for name in draw_everything(page):
        if name in ("speed", "ratios", "attention") or name.startswith(("resources", "history")):
            keep(page, f"report_{width}_{name.split('-2026')[0]}")

    def fits():
        assert page.evaluate("document.documentElement.scrollWidth") <= width

    eventually(fits)


def keep(page, name: str) -> None:
    if str(SHOTS) != ".":
        SHOTS.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=SHOTS / f"{name}.png")


def test_dark_print_and_theme(opened, device):
    page = explore(opened([device]))
    expect(page.locator("body")).to_have_css("background-color", "rgb(255, 255, 255)")
    page.evaluate("scrollTo(0, 0)")
    click_until(page, "#theme", page.locator("html"), "data-theme", "dark")
    expect(page.locator("body")).to_have_css("background-color", "rgb(20, 23, 27)")
    keep(page, "report_dark")
    page.emulate_media(media="print")
    expect(page.locator("body")).to_have_css("background-color", "rgb(255, 255, 255)")


def test_the_page_glides_unless_a_reader_wants_less_motion(opened, device):
    page = opened([device])
    expect(page.locator("html")).to_have_css("scroll-behavior", "auto")
    page.emulate_media(reduced_motion="no-preference")
    expect(page.locator("html")).to_have_css("scroll-behavior", "smooth")


def test_tables_are_printed_in_full_or_say_what_is_left_out(opened, committed):
    page = explore(opened(committed))
    assert page.locator("#view-table tbody tr").count() < 80
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    counts = page.evaluate("""[...document.querySelectorAll('.vtable')].map((part) => [parseInt(part.querySelector('.count').textContent),
        part.querySelectorAll('tbody tr:not([aria-hidden])').length, part.querySelector('tbody tr:last-child').textContent])""")
    assert len(counts) == page.locator("[data-table]").count() + 1  # and that of the explorer
    for rows, shown, last in counts:
        assert shown == rows if rows <= 200 else shown == 201 and last.startswith(f"200 of {rows} rows are printed")
    assert page.locator("section > details:not([open])").count() == 0
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("#view-table tbody tr").count() < 80 and page.locator("section > details:not([open])").count() > 0


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_serious_finding_of_axe(opened, tmp_path, theme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="skipped: the Python package axe-playwright-python is missing")
    device = load([every_section(with_auto(gpu_folder(**TINY))).write(tmp_path / "20261120T100000Z_0123456789_h200")])[0]
    page = explore(opened([device]))
    sections = set(page.evaluate("[...document.querySelectorAll('section')].map((section) => section.id)"))
    assert {"best-width", "best-encoded", "linear", "several-gpus"} <= sections
    page.evaluate(f"document.documentElement.dataset.theme = '{theme}'")
    list(draw_everything(page))

    def sound():
        found = [v for v in axe.Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"] if v["impact"] in SERIOUS]
        assert found == [], json.dumps([(v["id"], [n["html"][:150] for n in v["nodes"][:3]]) for v in found], indent=1)

    eventually(sound)


def test_text_of_a_folder_is_shown_and_never_run(opened, tmp_path):
    page = explore(opened(load([hostile(gpu_folder(**TINY)).write(tmp_path / "run")])))
    list(draw_everything(page))

    def told():  # a chart that is drawn anew under a mouse at rest shows none
        page.mouse.move(0, 0)
        page.locator("#by-n svg .mark-symbol path").first.hover(force=True)
        expect(page.locator("#vg-tooltip-element.visible")).to_contain_text("variant", timeout=1000)

    eventually(told)
    expect(page.locator("#variants")).to_contain_text(SCRIPT)
    assert page.title() != "planted"


def test_my_problem_has_encoding_placement_and_operator_and_an_address(opened, tmp_path):
    writer = every_section(with_auto(gpu_folder(**TINY)))
    writer.measure("kronecker", "f16", 4096, 1 << 24, "replay", placement="out", time_us=7, limit_us=6, fraction_of_limit=6 / 7)
    writer.measure("mma_split", "f16", 512, 1 << 20, "replay", operator="512+signs", encoding="e4m3:row", time_us=0.1)
    devices = load([writer.write(tmp_path / "20260101T000000Z_0_h200")])
    page = opened(devices)
    page.select_option("#which select[name=encoding]", "e4m3:row")
    for name, value in (("n", "512"), ("rows", "100000")):
        page.fill(f"#which input[name={name}]", value)
    page.click("#which button")
    _, found = tables.which(devices, "f16", 512, 100000, encoding="e4m3:row")
    expect_answer(page, found)
    expect(page).to_have_url(re.compile("my_rows=100000"))
    again = opened(devices, address=page.url[page.url.index("#") :])
    expect_answer(again, found)
    expect(again.locator("#which select[name=encoding]")).to_have_value("e4m3:row")
    page.select_option("#which select[name=encoding]", "")
    for layout, operator, n, words in (
        ("out of place", "", "4096", "out of place"),
        ("", "28x512", "14336", "in place"),
        ("", "14x1024", "14336", "Nothing was measured in f16, 14x1024."),
    ):
        page.select_option("#which select[name=layout]", layout)
        page.fill("#which input[name=operator]", operator)
        page.fill("#which input[name=n]", n)
        page.click("#which button")
        expect(page.locator("#which-answer")).to_contain_text(words)
    assert "auto" in page.inner_text(".best")  # what fwht::transform launches is one of them


def test_my_problem_names_row_lengths_of_the_device_and_of_what_is_asked(opened, tmp_path):
    writers = {H200_NAME: FolderWriter(), H100_NAME: FolderWriter(device=H100)}
    for (name, writer), n in zip(writers.items(), (8960, 4096)):
        writer.measure("naive", "f16", n, n * 64, "replay", operator="35x256" if n == 8960 else n)
        writer.write(tmp_path / name)
    page = opened(runs([load_folder(tmp_path / name) for name in writers]))
    page.fill("#which input[name=n]", "4096")
    page.fill("#which input[name=rows]", "64")
    button = f"#device button[value='{H200_NAME}']"
    click_until(page, button, page.locator(button), "aria-pressed", "true")
    expect(page.locator("#which-answer")).to_have_text(f"n = 4096 was not measured in f16 on {H200_NAME}; the only row length is 8960.")
    page.fill("#which input[name=operator]", "4096")
    page.click("#which button")
    expect(page.locator("#which-answer")).to_have_text(f"Nothing was measured in f16, 4096 on {H200_NAME}.")


def test_my_problem_chooses_run_and_mode_as_which_does(opened, tmp_path):
    """Two runs of one device: launches that overlap, and a mode that does not judge the L2, are the newer one's."""
    older, newer = FolderWriter(), FolderWriter(utc_start="2026-11-21T10:00:00Z", commit="2" * 40, sources_hash="b" * 64)
    for writer, variant, modes in ((older, "naive", ("replay", "alternating")), (newer, "wgmma", ("replay_pdl", "cold"))):
        for rows, mode in zip((64, 1 << 14), modes):
            writer.measure(variant, "f16", 512, 512 * rows, mode)
        writer.measure("bygone", "f16", 512, 512 * 64, "replay", time_us=0.5, limit_us=0.4)
        writer.write(tmp_path / variant)
    devices = runs([load_folder(tmp_path / variant) for variant in ("naive", "wgmma")])
    page = opened(devices, address="#folder-%")
    page.fill("#which input[name=n]", "512")
    for rows in (64, 1 << 14):
        page.fill("#which input[name=rows]", str(rows))
        page.click("#which button")
        _, found = tables.which(devices, "f16", 512, rows)
        assert list(found["variant"]) == ["naive"]
        expect_answer(page, found)


def test_my_problem_says_when_nothing_near_was_measured(opened, device):
    page = opened([device])
    for rows, warned in (("8", False), ("1", True), (str(10**9), True)):
        page.fill("#which input[name=rows]", rows)
        page.press("#which input[name=rows]", "Enter")
        expect(page.locator("#which-answer .warning:has-text('Nothing near')")).to_have_count(int(warned))


def test_lines_stop_where_nothing_was_measured(opened, tmp_path):
    writer = gpu_folder(**TINY)
    for variant, sizes in (("dense", range(15, 29)), ("sparse", (15, 16, 27, 28))):
        for size in sizes:
            writer.measure(variant, "f16", 4096, 1 << size, "replay")
    page = explore(opened(load([writer.write(tmp_path / "20260101T000000Z_0_h200")])))
    other = page.locator("#variants button:has-text('naive')")
    for variant, strokes in (("dense", 1), ("sparse", 2)):
        click_until(page, f"#variants button:has-text('{variant}')", other, "aria-pressed", "false", modifiers=["Shift"])
        page.wait_for_function(
            f"[...document.querySelectorAll('#by-size svg .mark-line path')].map(p => p.getAttribute('d').split('M').length - 1).join() === '{strokes}'"
        )
        click_until(page, "#variants button:has-text('switch all')", other, "aria-pressed", "true")


def test_the_first_view_is_where_most_variants_were_measured(opened, tmp_path):
    writer = gpu_folder(**TINY | {"sizes": (1 << 20,)})
    writer.measure("alone", "f16", 4096, 1 << 24, "replay")
    page = explore(opened(load([writer.write(tmp_path / "20260101T000000Z_0_h200")])))
    expect(page.locator("#controls select[name=size]")).to_have_value("20")


def test_a_row_leads_to_its_folder_and_settings_are_words(opened, device):
    page = explore(opened([device]))
    rows = page.locator("#detail tbody tr")
    assert "{" not in rows.first.inner_text() and "threads 256" in page.inner_text("#detail")
    page.locator("#detail a").first.click()
    page.wait_for_function("document.querySelector('details[id^=folder-]').getBoundingClientRect().top < innerHeight")
    expect(page).to_have_url(re.compile("#folder-20261120T100000Z_0123456789_h200$"))
    expect(page.locator("#provenance")).to_contain_text("command")


@pytest.mark.parametrize("width", [1400, 500])
def test_the_contents_fit_and_charts_use_the_page(opened, tmp_path, width):
    page = opened(load([every_section(with_auto(gpu_folder(**TINY))).write(tmp_path / "20260101T000000Z_0_h200")]), width=width)
    assert page.evaluate("[...document.querySelectorAll('nav li')].every(li => li.getBoundingClientRect().right <= innerWidth)")
    page.locator("[data-chart=error_against_speed]").evaluate("(chart) => chart.scrollIntoView()")
    page.wait_for_selector("[data-chart=error_against_speed] svg")

    def filled():
        box, drawing = (page.locator(f"[data-chart=error_against_speed]{inner}").bounding_box() for inner in ("", " svg.marks"))
        assert box and drawing
        used, blank = drawing["width"] / box["width"], box["height"] - drawing["height"]
        assert used > 0.75 and blank < 60

    eventually(filled)


@pytest.mark.parametrize("width", [1400, 1850])
def test_two_devices_stand_side_by_side_where_both_fit(opened, committed, width):
    page = opened(committed, width=width)

    def stand():
        first, second = (page.locator(f"#answer [data-device='{name}']").bounding_box() for name in (H100_NAME, H200_NAME))
        if width < 1800:
            assert first["y"] + first["height"] <= second["y"]
        else:
            assert first["y"] == second["y"] and first["x"] + first["width"] <= second["x"]
        assert page.evaluate("[...document.querySelectorAll('.sides .scroll')].every((table) => table.scrollWidth <= table.clientWidth)"), "no table is cut"
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "nor is the page"

    eventually(stand)


def test_one_of_two_devices_is_chosen(opened, tmp_path):
    devices = runs([load_folder(h200_folder(tmp_path)), load_folder(h100_folder(tmp_path))])
    page = opened(devices)
    names = (H100_NAME, H200_NAME)
    assert page.locator("#which-answer strong").count() == 2, "my problem on either"
    keep(page, "report_two_devices")
    for name, other in (names, names[::-1]):
        button = f"#device button[value='{name}']"
        click_until(page, button, page.locator(button), "aria-pressed", "true")
        expect(page.locator(f"[data-device='{other}']:visible")).to_have_count(0)
        expect(page.locator(f"[data-device='{name}']:visible")).not_to_have_count(0)
        expect(page.locator("#which-answer strong")).to_have_count(1)
        expect(page.locator("#which-answer caption")).to_contain_text(name)
        explore(page)
        shown = next(device for device in devices if device.name == name)
        expect(page.locator("#controls select[name=run]"), "one run of one device: nothing to choose").to_have_count(0)
        expect(page.locator(f"#detail a[href='#folder-{shown.newest.name}']")).not_to_have_count(0)
        list(draw_everything(page, ":visible"))
    again = opened(devices, address=page.url[page.url.index("#") :])
    expect(again.locator(f"#device button[value='{H200_NAME}']")).to_have_attribute("aria-pressed", "true")
    expect(again.locator(f"[data-device='{H100_NAME}']:visible")).to_have_count(0)
    every = "#device button[value='']"
    click_until(again, every, again.locator(every), "aria-pressed", "true")
    expect(again.locator(f"#answer [data-device='{H100_NAME}']")).to_be_visible()
    expect(again.locator("#which-answer strong")).to_have_count(2)


def test_models_are_drawn_with_their_intervals(opened, device, tmp_path):
    """Beside runs, and alone: a line for every format and rotation, and a point on it."""
    evaluation = load_evaluation(written(tmp_path / "small"))
    rows = evaluation.rows.query("format != 'none'")
    for devices in ([], [device]):
        page = opened(devices, evaluations=[evaluation])
        page.locator("#models").evaluate("(section) => section.scrollIntoView()")
        chart = page.locator("[data-chart=model-kl-1]")
        chart.locator("svg .mark-symbol path").first.wait_for()
        lines = "[...document.querySelectorAll('[data-chart=model-kl-1] svg .mark-rule.role-mark line')]"
        page.wait_for_function(f"{lines}.filter((line) => Math.abs(line.getAttribute('y2')) > 1).length === {len(rows)}")
        expect(page.locator("#provenance")).to_contain_text("small")
