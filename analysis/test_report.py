"""The report's data: every chart and table of a tiny folder, what is escaped, what a section needs. The browser test looks at the page."""

import base64
import gzip
import json
import re

import pytest

from analysis import report, schema, tables
from analysis.cli import main
from analysis.conftest import FolderWriter, gpu_folder, host_folder
from analysis.load import ResultsError, load, load_folder, timed_on_gpu
from analysis.test_pages import with_auto
from analysis.test_tables import beside_the_cpu

TINY = {"ns": (16, 4096), "sizes": (1 << 15, 1 << 24, 1 << 28), "modes": ("replay", "alternating"), "dtypes": ("f16",)}


@pytest.fixture
def device(tmp_path):
    return load([with_auto(gpu_folder(**TINY)).write(tmp_path / "20261120T100000Z_0123456789_h200")])[0]


def data_of(page: str) -> dict:
    """What the page's script reads."""
    (text,) = re.findall(r'<script type="text/plain" id="data">([^<]*)</script>', page)
    return json.loads(gzip.decompress(base64.b64decode(text)))


def test_every_measurement_is_in_the_page_once(device):
    data = data_of(report.page([device], ""))
    (run,) = data["runs"]
    rows = [
        dict(zip(columns, row))
        for columns in [{name: v if isinstance(v, list) else [v["levels"][c] for c in v["codes"]] for name, v in run["results"].items()}]
        for row in zip(*columns.values())
    ]
    measured = [row for row in rows if row["status"] != "published"]
    assert len(measured) == len(device.results)
    first, expected = measured[0], device.results.iloc[0]
    assert (first["variant"], first["n"], first["rows"], first["mode"]) == (expected["variant"], expected["n"], expected["rows"], expected["mode"])
    assert first["time_us"] == pytest.approx(expected["time_us"], rel=1e-4) and first["rel_l2"] == pytest.approx(expected["rel_l2"], rel=1e-4)
    published = [row for row in rows if row["status"] == "published"]
    known = tables.published()
    assert len(published) == len(known[(known["dtype"] == "f16") & (known["mode"] == "replay")])
    assert set(data["styles"]) == {row["variant"] for row in rows}


def test_published_times_stand_beside_their_own_gpu_only(tmp_path):
    writer = gpu_folder(**TINY)
    writer.context["device"]["name"] = "NVIDIA A100"
    (device,) = load([writer.write(tmp_path / "run")])
    assert set(report.explored(device)["status"]) == {"ok"}


def test_the_answer_is_the_best_variant_by_n_and_regime(device):
    (found,) = report.answers_of([device])
    assert [size.label for size in found.sizes] == ["DRAM", "L2", "small"]
    (row,) = [row for row in found.rows if row["n"] == 4096]
    best = tables.best(device.results, forwards=True)
    for size, cell in zip(found.sizes, row["cells"]):
        expected = best[(best["n"] == 4096) & (best["elements"] == size.elements) & (best["mode"] == size.mode) & (best["dtype"] == "f16")].iloc[0]
        assert (cell["variant"], cell["time_us"]) == (expected["variant"], expected["time_us"])
    assert [gain.name for gain in found.gains] == ["HadaCore", "fast-hadamard-transform"]


@pytest.mark.parametrize("dtypes", [("f16",), ("f32",)])
def test_a_gpu_answers_by_its_own_rows(tmp_path, dtypes):
    """Not by those of the CPU, which the grids quick and smoke measure too."""
    (device,) = load([beside_the_cpu(gpu_folder(**TINY | {"dtypes": dtypes, "sizes": (1 << 15, 1 << 22, 1 << 28)})).write(tmp_path / "run")])
    (found,) = report.answers_of([device])
    assert found.dtype == dtypes[0] and [size.label for size in found.sizes] == ["DRAM", "L2", "small"]
    assert {cell["mode"] for row in found.rows for cell in row["cells"] if cell} == {"replay", "alternating"}


def test_a_newer_run_of_the_cpu_alone_does_not_speak_for_the_gpu(device, tmp_path):
    (later,) = load([beside_the_cpu(FolderWriter(utc_start="2026-11-21T10:00:00Z")).write(tmp_path / "cpu")])
    assert [answer.device for answer in report.answers_of([later, device])] == [device] and not timed_on_gpu(later)


def test_sections_are_there_when_their_data_are(device, tmp_path):
    def ids(*devices):
        return [section.id for section in report.sections_of(list(devices))]

    assert ids(device) == ["published", "best-transform", "accuracy", "checks"]
    host = load([host_folder().write(tmp_path / "host")])[0]
    assert ids(host) == ["best-transform", "accuracy", "checks"]
    writer = gpu_folder(ns=(512,), sizes=(1 << 20,), modes=("replay",), dtypes=("f16",), commit="f" * 40)
    writer.measure("kronecker", "f16", 14336, 14336 * 64, "replay", operator="28x512")
    writer.measure("mma_split", "f16", 512, 1 << 20, "replay", encoding="e4m3:row")
    writer.measure("passes", "i32", 512, 1 << 20, "replay", arrangement="inner8", row_stride=4096, rel_l2=0, predicted_rel_l2=0)
    (wide,) = load([writer.write(tmp_path / "wide")])
    assert {"best-width", "arranged", "best-encoded"} <= set(ids(wide))
    assert "× natural" in report.page([wide], "")


def test_a_table_that_has_no_section_of_its_own_gets_one(tmp_path):
    """As a new family of rows: declared in the folder's schema.json, nothing to do here."""
    folder = gpu_folder(**TINY).write(tmp_path / "run")
    content = json.loads((folder / schema.NAME).read_text())
    column = {"unit": "", "required": True, "key": True, "meaning": "x"}
    content["tables"]["other.csv"] = {
        "program": "x",
        "meaning": "x",
        "columns": [
            column | {"name": "variant", "type": "string"},
            column | {"name": "m", "type": "integer"},
            column | {"name": "time_us", "type": "number", "key": False},
        ],
    }
    (folder / schema.NAME).write_text(json.dumps(content))
    (folder / "other.csv").write_text("variant,m,time_us\nsplitk,1,3.5\nsplitk,8,4.5\n")
    sections = {section.id: section for section in report.sections_of(load([folder]))}
    drawn, table = sections["table-other"].parts
    assert isinstance(drawn, report.Chart) and isinstance(table, report.Table)
    assert drawn.frame["time_us"].to_list() == [3.5, 4.5] and drawn.spec["encoding"]["x"]["field"] == "m"
    assert [c[0] for c in table.columns] == ["variant", "m", "time_us"]


def test_charts_refer_to_columns_of_their_data(device):
    """And every one is a specification that Vega-Lite compiles."""
    import vl_convert

    def fields(node):
        if isinstance(node, dict):
            yield from ([node["field"]] if "field" in node else [])
            for value in node.values():
                yield from fields(value)
        elif isinstance(node, list):
            for value in node:
                yield from fields(value)

    drawn = [part for section in report.sections_of([device]) for part in section.parts if isinstance(part, report.Chart)]
    assert len(drawn) >= 4
    for chart in drawn:
        assert set(fields(chart.spec)) <= set(chart.frame.columns), chart.id
        vl_convert.vegalite_to_vega(chart.spec | {"data": {"values": report.unpacked(chart.frame)}})


def test_exact_results_do_not_take_the_others_off_a_logarithmic_axis(tmp_path):
    """One 0 is enough: every point of the chart was drawn at its upper edge."""
    writer = gpu_folder(**TINY)
    for dtype in ("f64", "i32"):
        writer.measure("naive", dtype, 16, 1 << 15, "replay", rel_l2=0)
    (device,) = load([writer.write(tmp_path / "run")])
    assert 0 in set(tables.errors(device)["over_ideal"])
    drawn = {part.id: part for section in report.sections_of([device]) for part in section.parts}["error"]
    assert set(drawn.frame["dtype"]) == {"f16"} and (drawn.frame["over_ideal"] > 0).all()


def test_runs_of_two_commits_are_compared(device, tmp_path):
    other = gpu_folder(**TINY, slow=1.2, commit="f" * 40, sources_hash="b" * 64, utc_start="2026-11-19T10:00:00Z").write(tmp_path / "old")
    sections = {section.id: section for section in report.sections_of([device, *load([other])])}
    table, *history = sections["runs"].parts
    assert (table.frame["geometric_mean"] > 1.1).all() and history[0].frame["run"].nunique() == 2


def test_wrong_and_noisy_measurements_are_listed(tmp_path):
    writer = gpu_folder(**TINY)
    writer.tables["results.csv"][0] |= {"status": "incorrect", "time_us": "", "fraction_of_limit": "", "message": "element 3 is off"}
    noisy = writer.tables["results.csv"][1]
    noisy |= {"time_max_us": 1.21 * float(noisy["time_min_us"])}
    writer.tables["results.csv"][2] |= {"throttle": "sw_power_cap", "sm_clock_mhz": 1230, "measurements": 3}
    quiet = writer.tables["results.csv"][2]
    quiet |= {"time_max_us": 1.19 * float(quiet["time_min_us"])}
    parts = {part.id: part for section in report.sections_of(load([writer.write(tmp_path / "run")])) for part in section.parts}
    assert list(parts["wrong"].frame["message"]) == ["element 3 is off"]
    assert len(parts["noisy"].frame) == 1 and list(parts["throttled"].frame["sm_clock_mhz"]) == [1230]
    assert ("rows", "; 1 noisy") in [(k, v[-9:]) for k, v in report.provenance(load_folder(tmp_path / "run"))]


def test_a_run_on_a_loaded_machine_says_so(tmp_path):
    runs = [{"argv": ["fwht_sweep"], "load_average": 15.0}]
    lines = dict(report.provenance(load_folder(gpu_folder(**TINY, runs=runs).write(tmp_path / "run"))))
    assert "LOADED by other work" in lines["host"]


SCRIPT = "<script>document.title='planted'</script><img src=x onerror=\"document.title='planted'\">"


def hostile(writer: FolderWriter) -> FolderWriter:
    """Markup in every text that a folder may hold."""
    for key in ("command", "version", "build_type", "cxx", "cxx_flags", "cuda", "cuda_flags", "grid", "commit", "sources_hash"):
        writer.context[key] = SCRIPT
    writer.context["argv"] = [SCRIPT]
    writer.context["host"]["name"] = SCRIPT
    writer.context["device"]["name"] = f"NVIDIA H200 {SCRIPT}"
    writer.context["variants"].append(SCRIPT)
    for row in writer.tables["results.csv"][:40]:
        row |= {"variant": SCRIPT, "limit_kernel": SCRIPT, "settings": json.dumps({SCRIPT: SCRIPT}), "message": SCRIPT}
    unique = {(r["dtype"], r["n"], r["rows"], r["mode"]): r for r in writer.tables["results.csv"][:40]}
    writer.tables["results.csv"] = [*unique.values(), *writer.tables["results.csv"][40:]]
    for row in writer.tables["unsupported.csv"]:
        row["reason"] = SCRIPT
    return writer


def test_text_of_a_folder_is_escaped(tmp_path):
    folder = hostile(gpu_folder(**TINY)).write(tmp_path / "20261120T100000Z_<b>x")
    page = report.page(load([folder]), SCRIPT)
    assert "planted" in page  # it is shown
    assert not re.search(r"<(script|img)[^>&]*>?document\.title=.?planted", page) and 'onerror="document' not in page and "<b>x" not in page
    data = data_of(page)
    assert SCRIPT in data["styles"]


def test_the_page_loads_nothing(device):
    page = report.page([device], "")
    assert "default-src 'none'" in page
    own = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)  # the bundle names its project's addresses
    assert not re.search(r"(?:src|href)=\"(?!#)", own) and "://" not in own


def test_the_report_of_a_checkout_that_cannot_be_written(tmp_path, capsys, monkeypatch):
    folder = gpu_folder(**TINY).write(tmp_path / "run")
    monkeypatch.setattr("analysis.cli.ROOT", tmp_path)
    (tmp_path / "build").touch()
    assert main(["report", str(folder)]) == 2
    assert capsys.readouterr().err.endswith("cannot be written: Not a directory; --output FILE.html names another place\n")


def test_the_report_on_the_command_line(tmp_path, capsys):
    folder = gpu_folder(**TINY).write(tmp_path / "run")
    output = tmp_path / "new" / "report.html"
    assert main(["report", str(folder), "--output", str(output)]) == 0
    captured = capsys.readouterr()
    assert captured.out.splitlines() == [str(output)] and "measurements of 1 run" in captured.err
    for wrong, words in ((tmp_path, "is a folder"), (folder / "results.csv" / "x.html", "cannot be written")):
        assert main(["report", str(folder), "--output", str(wrong)]) == 2
        assert words in capsys.readouterr().err
    assert main(["report", str(folder), str(folder)]) == 2
    with pytest.raises(ResultsError, match="cannot be written"):
        report.write_report(load([folder]), folder / "context.json" / "report.html")


def test_the_committed_report_is_below_four_megabytes():
    """Without named folders: the newest runs, the newest accuracy and profile."""
    from analysis.load import committed_folders

    devices = report.committed_runs(committed_folders())
    page = report.page(devices, "")
    assert len(page.encode()) < 4 << 20
    assert {"published", "accuracy", "profile", "runs"} <= {section.id for section in report.sections_of(devices)}


def wider(tmp_path):
    """A wide run of one commit, a newer one of half its lengths, in twice the time."""
    small = {"sizes": (1 << 15,), "modes": ("replay",), "dtypes": ("f16",)}
    wide = gpu_folder(ns=(16, 64, 256, 4096), **small, commit="1" * 40, utc_start="2026-11-19T10:00:00Z").write(tmp_path / "wide")
    narrow = gpu_folder(ns=(16, 64), **small, slow=2.0, commit="2" * 40, sources_hash="b" * 64, utc_start="2026-11-20T10:00:00Z").write(tmp_path / "narrow")
    return load([wide, narrow], split=True)


def test_a_section_takes_the_run_with_the_widest_cover_and_says_so(tmp_path):
    devices = wider(tmp_path)
    assert [d.newest.name for d in devices] == ["narrow", "wide"]
    (section,) = [s for s in report.sections_of(devices) if s.id == "best-transform"]
    assert set(section.parts[0].frame["n"]) == {16, 64, 256, 4096} and "1111111111" in section.parts[0].title
    assert "2 of its 4 problems were measured again in NVIDIA H200, 2222222222." in section.parts[0].words
    assert report.coverage(devices[0], devices, list(map(report.COVERS["best-transform"], devices))) == "2 of 4 problems that runs of this device measured. "
    assert report.committed_runs([f for d in devices for f in d.folders])[-1].newest.name == "wide"


@pytest.mark.parametrize(("lengths", "chosen"), [(9, "wide"), (18, "narrow"), (20, "narrow"), (0, "wide")])
def test_a_newer_run_speaks_where_it_covers_nine_tenths(tmp_path, lengths, chosen):
    devices = wider(tmp_path)
    found = report.widest(devices, [{(i,) for i in range(lengths)}, {(i,) for i in range(20)}])
    assert found is not None and found.newest.name == chosen
    assert report.widest(devices, [set(), set()]) is None


def test_history_compares_each_problem_with_the_widest_run(tmp_path):
    devices = wider(tmp_path)
    frame = tables.drift(devices[::-1])
    assert set(frame["run"]) == {d.short for d in devices} and set(frame.loc[frame["run"] == devices[0].short, "problems"]) == {2}
    assert frame.loc[frame["run"] == devices[0].short, "relative"].to_numpy() == pytest.approx(0.5, rel=0.05)
    assert frame.loc[frame["run"] == devices[1].short, "relative"].eq(1).all() and tables.drift(devices[:1]).empty


def test_the_first_report_of_a_machine_without_a_gpu_shows_an_h200(tmp_path, capsys):
    """As ./testbed run makes it: three regimes, both published kernels, and the machine's own rows."""
    folder = host_folder().write(tmp_path / "20261120T100000Z_0123456789_host")
    assert main(["report", str(folder), "--committed", "--allow-dirty", "--output", str(tmp_path / "x.html")]) == 0
    page = (tmp_path / "x.html").read_text()
    tiles = re.findall(r'<div class="tile">.*?</div>', page, re.DOTALL)
    assert sum("HadaCore" in tile or "fast-hadamard-transform" in tile for tile in tiles) >= 2
    assert [label for label in ("DRAM", "L2", "small") if any(f", {label}, " in tile for tile in tiles)] == ["DRAM", "L2", "small"]
    data = data_of(page)
    assert "(host only)" in data["runs"][0]["name"] and any(run["device"] == "NVIDIA H200" for run in data["runs"][1:])
    assert data["runs"][data["start"]]["device"] in data["answers"] and "NVIDIA H200" in data["answers"]


@pytest.mark.parametrize("name", ["NVIDIA GH200 480GB", "NVIDIA H200 NVL", "NVIDIA H200 MIG 1g.18gb"])
def test_another_device_has_no_times_of_an_h200(tmp_path, name):
    writer = gpu_folder(**TINY)
    writer.context["device"]["name"] = name
    (device,) = load([writer.write(tmp_path / "run")])
    assert not tables.has_published_gpu(device) and tables.gains(device) == [] and tables.beside_published(device).empty
    assert set(report.explored(device)["status"]) == {"ok"}
