"""Two GPUs on record: what pages, report, `which` and tuning tables say of an H100 beside an H200, and that neither displaces the other."""

import json
import re
import subprocess

import pandas as pd
import pytest

from analysis import layers, pages, report, tables, tune
from analysis.cli import main
from analysis.conftest import H100, FolderWriter, gpu_folder, host_folder, make_context
from analysis.load import load_folder, newest, runs
from analysis.models import committed_evaluations
from analysis.test_layers import add_layers
from analysis.test_models import changed, written
from analysis.test_pages import README, with_auto

H100_NAME, H200_NAME = "NVIDIA H100 80GB HBM3", "NVIDIA H200"
SMALL = {"ns": (16, 4096), "sizes": (1 << 15, 1 << 23, 1 << 24, 1 << 28), "modes": ("replay", "alternating"), "dtypes": ("f16",)}
LATER = {"commit": "1" * 40, "sources_hash": "b" * 64}


def h200_folder(results):
    return with_auto(gpu_folder(**SMALL)).write(results / "20261120T100000Z_0123456789_nvidia-h200")


def h100_folder(results, name="20261125T100000Z_1111111111_nvidia-h100", **changes):
    context = {"device": H100, "utc_start": f"{name[:4]}-{name[4:6]}-{name[6:8]}T10:00:00Z", **LATER}
    return with_auto(gpu_folder(**SMALL | changes, slow=1.25, **context)).write(results / name)


def add_peers(folder):
    """The published kernels as `python -m fwht.bench` times them beside `auto`: HadaCore 1.5 times and the other 3 times its time."""
    file = folder / "results.csv"
    rows = pd.read_csv(file, dtype=str, keep_default_na=False)
    parts = [rows]
    for peer, ratio in (("peer:hadacore", 1.5), ("peer:dao", 3.0)):
        own = rows[rows["variant"] == "auto"].assign(variant=peer, settings="{}")
        for column in ("time_us", "time_min_us", "time_max_us"):
            own[column] = (own[column].astype(float) * ratio).astype(str)
        parts.append(own.assign(fraction_of_limit=(own["limit_us"].astype(float) / own["time_us"].astype(float)).astype(str)))
    pd.concat(parts).to_csv(file, index=False)
    return folder


def results_of(root):
    (root / "README.md").write_text(README)
    return root / "experiments" / "results"


def commit(root):
    """Which folders count, git says."""
    for command in (["init", "-q"], ["add", "."], ["-c", "user.name=x", "-c", "user.email=x@example.com", "commit", "-q", "-m", "x"]):
        subprocess.run(["git", "-C", str(root), *command], check=True)


def texts(root):
    return {path.relative_to(root).as_posix(): text for path, text in pages.pages(root).items()}


def section(text, heading):
    """What stands under a heading of level three."""
    return re.split(r"^#{2,3} .*$", text.split(f"### {heading}\n")[1], maxsplit=1, flags=re.MULTILINE)[0]


def test_the_newest_of_every_gpu_by_name(tmp_path):
    tiny = {"ns": (16,), "sizes": (1 << 15,), "modes": ("replay",), "dtypes": ("f16",)}

    def at(day, **context):
        return {"utc_start": f"2026-11-{day}T10:00:00Z", "commit": str(day)[-1] * 40, "sources_hash": f"{day}" * 32} | context

    writers = {
        "old h200": gpu_folder(**tiny, **at(20)), "h200": gpu_folder(**tiny, **at(21)), "h100": gpu_folder(**tiny, **at(22), device=H100),
        "code": gpu_folder(**tiny, **at(23), cuda_flags="architectures 80"),
        "code h100": gpu_folder(**tiny, **at(24), device=H100, cuda_flags="architectures 80"),
        "host": host_folder(**at(25)), "new host": host_folder(**at(26, host={"name": "Other CPU", "threads": 2, "memory_bytes": 1})),
    }  # fmt: skip
    devices = runs([load_folder(writer.write(tmp_path / name)) for name, writer in writers.items()])

    def found(*names):
        return [device.newest.name for device in newest(devices, lambda d: d.newest.name in names)]

    assert found(*writers) == ["h100", "h200"]
    assert found("old h200", "code", "host") == ["old h200"]
    assert found("code", "code h100", "host") == ["code h100", "code"], "code for an older architecture speaks where nothing else does"
    assert found("host", "new host") == ["new host"], "and hosts last, the newest alone"
    assert found() == []
    lengths = {"old h200": 2, "h200": 1, "h100": 1}
    fullest = [device.newest.name for device in newest(devices, lambda d: lengths.get(d.newest.name, 0))]
    assert fullest == ["h100", "old h200"], "a newer run over a part does not hide the whole"


def test_a_part_of_the_grid_tune_hides_no_row_length(tmp_path):
    folders = []
    for day, operators in ((20, {"28x512": 14336, "172x64": 11008}), (21, {"28x512": 14336})):
        writer = FolderWriter(utc_start=f"2026-11-{day}T10:00:00Z", commit=str(day)[-1] * 40, sources_hash=f"{day}" * 32, grid="tune")
        for operator, n in operators.items():
            for variant in ("kronecker", "factors"):
                writer.measure(variant, "f16", n, n, "replay", operator=operator)
        folders.append(load_folder(writer.write(tmp_path / str(day))))
    devices = runs(folders)
    (line,) = [line for line in pages._special_support(devices).splitlines() if "factors" in line]
    assert line.endswith("| 11008, 14336 |")
    assert [tables.lengths_beside(device, "factors", "kronecker", (11008, 14336)) for device in devices] == [1, 2], "the newest first"


def test_a_smaller_folder_of_another_gpu_changes_no_page_of_the_first(tmp_path):
    results = results_of(tmp_path)
    h200_folder(results)
    before = texts(tmp_path)
    assert set(before) >= {"README.md", "docs/results.md", "docs/figures/speed.svg", "analysis/ACCURACY.md"}
    h100_folder(results, sizes=(1 << 15,))
    after = texts(tmp_path)
    for page in ("README.md", "docs/results.md", "docs/figures/speed.svg", "docs/figures/error_against_speed.svg"):
        assert after[page] == before[page], f"{page}: a run without all regimes speaks for no device"
    for name in (H100_NAME, H200_NAME):
        assert f"): {name}, commit" in after["analysis/ACCURACY.md"], "errors need no regimes: both are there"


def test_pages_show_both_gpus_each_beside_its_own_copy(tmp_path):
    results = results_of(tmp_path)
    first, second = h200_folder(results), h100_folder(results)
    found = texts(tmp_path)
    readme, page = found["README.md"], found["docs/results.md"]
    assert f"On one {H100_NAME}, where no published kernel was timed" in readme and re.search(rf"On one {H200_NAME}, `fwht::transform` is [\d.]+ times", readme)
    for folder, name, elements, l2_mode in ((second, H100_NAME, 1 << 23, "alternating"), (first, H200_NAME, 1 << 24, "replay")):
        (device,) = runs([load_folder(folder)])
        own = tables.own_rows(device, "f16").set_index(["n", "elements", "mode"])["fraction_of_limit"]
        dram, l2 = (tables.percent(own[(4096, count, mode)]) for count, mode in ((1 << 28, "replay"), (elements, l2_mode)))
        table = re.split(rf"^{name}, commit `\w+`, [\d-]+:$", readme, flags=re.MULTILINE)[1].split("\n\n")[1]
        assert re.search(rf"^\| 4096 \| {dram} \| ({'' if name == H100_NAME else '[0-9.]+ [|] [0-9.]+ [|] '}){l2} ", table, re.MULTILINE)
        assert (
            f"experiments/results/{folder.name}" in page and name in found["docs/figures/speed.svg"] and name in found["docs/figures/error_against_speed.svg"]
        )
        assert re.search(
            rf"^\| 4096 \| .*{tables.percent(own[(4096, elements, 'alternating')])}, ", section(page.split("## fwht::transform")[1], name), re.MULTILINE
        )
    assert "× HadaCore" not in section(page.split("## fwht::transform")[1], H100_NAME)
    assert page.count(f"### {H100_NAME}") == page.count(f"### {H200_NAME}") - 1, "the section of the published kernels has those of the H200 alone"


def test_published_kernels_that_the_run_timed_itself(tmp_path):
    """Elsewhere than on the H200 whose times are recorded, they come from the same run: never from the other device."""
    results = results_of(tmp_path)
    h200_folder(results)
    (device,) = runs([load_folder(add_peers(h100_folder(results)))])
    both = tables.beside_published(device)
    assert both.groupby("method")["ratio"].agg(["min", "max"]).round(6).to_numpy().tolist() == [[3, 3], [1.5, 1.5]]
    assert both["published_fraction"].mul(both["ratio"]).round(4).equals(both["fraction_of_limit"].round(4)), "beside the copy of its own run"
    expected = tables.score(both["time_us"], 1.5 * both["time_us"], both["limit_us"])
    assert both["score"].dropna().to_numpy() == pytest.approx(expected.dropna().to_numpy())
    assert [(gain.name, round(gain.speedup, 3)) for gain in tables.gains(device)] == [("HadaCore", 1.5), ("fast-hadamard-transform", 3.0)]
    found = texts(tmp_path)
    words = f"On one {H100_NAME}, `fwht::transform` is 1.50 times as fast as HadaCore (at worst 1.50) and 3.00 times as fast as fast-hadamard-transform"
    assert words in found["README.md"] and ", for other devices from the same run" in found["README.md"]
    table = section(found["docs/results.md"].split("## Against the published kernels")[1], H100_NAME)
    assert re.search(r"^\| 4096 \| \d+ % \| 1\.50 \| 3\.00 \| \d+ % \| 1\.50 \| 3\.00 \|", table, re.MULTILINE)


def test_a_later_sweep_takes_no_part_in_a_ratio_of_the_run_with_the_peers(tmp_path):
    """Both times of a ratio are of one folder, although newer times of `auto` count elsewhere."""
    peers = add_peers(h100_folder(tmp_path))
    later = h100_folder(tmp_path, "20261126T100000Z_1111111111_nvidia-h100")
    rows = pd.read_csv(later / "results.csv", dtype=str, keep_default_na=False)
    for column in ("time_us", "time_min_us", "time_max_us", "limit_us"):
        rows[column] = (2 * rows[column].astype(float)).astype(str)
    rows.to_csv(later / "results.csv", index=False)
    (device,) = runs([load_folder(peers), load_folder(later)])
    assert set(tables.own_rows(device, "f16")["folder"]) == {later.name}
    both = tables.beside_published(device)
    assert set(both["folder"]) == {peers.name} and sorted(set(both["ratio"].round(6))) == [1.5, 3.0]


def test_every_kind_of_page_shows_both(tmp_path):
    results = results_of(tmp_path)
    for device, day, slow in (({}, 20, 1), ({"device": H100} | LATER, 25, 2)):
        writer = gpu_folder(ns=(4096,), sizes=(1 << 26,), modes=("replay",), dtypes=("f16",), utc_start=f"2026-11-{day}T10:00:00Z", **device)
        writer.measure("kronecker", "f16", 14336, 14336 * 4681, "replay", operator="28x512", time_us=100 * slow, limit_us=80, fraction_of_limit=0.8 / slow)
        for variant, time in (("mma_split", 10), ("rotate_then_quantize", 15)):
            writer.measure(
                variant, "f16", 512, 1 << 26, "replay", encoding="e4m3:row", time_us=time * slow, limit_us=7.5, fraction_of_limit=0.75 / slow * 10 / time
            )
        add_layers(writer, "cold", 4096, 8, w4a16_pipelined=5 * slow, dense_fp16=20)
        writer.write(results / f"202611{day}T100000Z_{day}")
    row = {"chain": "int4_kv", "tokens": 4, "heads": 8, "n": 128, "call": "transform(x)", "difference": 0.0031, "bound": 0.00605, "chain_us": 20.04,
           "ours_us": 2.0, "ratio": 10.02, "chain_launches": 7, "ours_launches": 1}  # fmt: skip
    for name, utc, gpu, ours in (("old", "1", H200_NAME, 2.0), ("new", "2", H100_NAME, 4.0), ("older", "0", H100_NAME, 9.0)):
        about = {"utc_start": utc, "library": {"dirty": False}, "device": gpu, "dtype": "bf16", "torch": "2", "chains": {"int4_kv": "a head"}}
        (results / name).mkdir()
        (results / name / "chains.json").write_text(json.dumps({"about": about, "rows": [row | {"ours_us": ours}]}))
    written(results / "model", **changed("about", device=H200_NAME))
    written(results / "model h100", **changed("about", device=H100_NAME), begun="2030-01-01T00:00:00Z")
    commit(tmp_path)
    devices = runs([load_folder(results / f"202611{day}T100000Z_{day}") for day in (20, 25)])
    values = pages.results_values(devices) | pages.layer_values(devices) | pages.model_values(tmp_path) | pages.chains_values(tmp_path)
    values |= pages.long_values(tmp_path)
    for template, shares in (("kronecker", ("40 %", "80 %")), ("encode", ("38 %, × 1.50", "75 %, × 1.50")), ("linear", ("10.0 (", "5.0 (")),
                             ("linear_which", ("10.0 (2.00)", "5.0 (4.00)")), ("chains", ("| 4.0 |", "| 2.0 |")), ("models", ("", ""))):  # fmt: skip
        text = pages.render(f"{template}.md.j2", up="", **values)
        before, _, behind = text.partition(H200_NAME)
        assert H100_NAME in before and H100_NAME not in behind, template
        assert shares[0] in before and shares[1] in behind, template
    assert "| 9.0 |" not in pages.render("chains.md.j2", up="", **values), "the newest of each device"
    assert len(committed_evaluations(tmp_path)) == 2
    readme = pages.render("README.md.j2", up="", **values)
    assert "H100 80GB HBM3: in f16, DRAM: 40 % of a copy" in readme and "; H200: in f16, DRAM: 80 % of a copy" in readme
    assert "H100 80GB HBM3: n = k from 4096 to 4096: 2.00 to 2.00; H200: n = k from 4096 to 4096: 4.00 to 4.00" in readme
    assert [frame["device"].unique().tolist() for frame in layers.by_tokens(devices)] == [[H100_NAME], [H200_NAME]]


def test_row_lengths_of_two_devices_are_one_list(tmp_path):
    folders = []
    for n, operator, context in ((14336, "28x512", {}), (7168, "28x256", {"device": H100} | LATER)):
        writer = FolderWriter(**context)
        writer.measure("kronecker", "f16", n, n * 64, "replay", operator=operator)
        writer.unsupported("kronecker", "f32", 4096, 4096, "dtype f32")
        folders.append(load_folder(writer.write(tmp_path / str(n))))
    (line,) = [line for line in pages._special_support(runs(folders)).splitlines() if "kronecker" in line]
    assert line.endswith("| 7168, 14336 |")
    assert tables.n_listed(tables.n_ranges([2, 4, 8, 12, 64, 128])) == [2, 4, 8, 12, 64, 128] and tables.n_listed("") == []


def test_the_report_switches_between_devices(tmp_path):
    devices = runs([load_folder(h200_folder(tmp_path)), load_folder(h100_folder(tmp_path))])
    assert [answer.device.name for answer in report.answers_of(devices)] == [H100_NAME, H200_NAME]
    assert report.names_of(devices, ()) == [H100_NAME, H200_NAME]
    sections = {section.id: section.parts for section in report.sections_of(devices)}
    for id in ("published", "best-transform", "checks", "accuracy"):
        assert {part.device for part in sections[id]} == {H100_NAME, H200_NAME}, id
    ids = [part.id for parts in sections.values() for part in parts]
    assert len(set(ids)) == len(ids)
    first, second, *_ = sections["best-transform"]
    assert first.id != second.id and first.device != second.device and first.title.split(" (")[0] == second.title.split(" (")[0], "side by side"
    page = report.page(devices, "")
    assert page.count(f'value="{H100_NAME}"') == 1 and min(page.count(f'data-device="{name}"') for name in (H100_NAME, H200_NAME)) > 5
    assert 'id="device"' not in report.page(devices[:1], ""), "nothing to switch"


def test_throttled_rows_of_both_devices_are_shown(tmp_path):
    folders = []
    for device, reason in (({}, "sw_thermal"), ({"device": H100} | LATER, "sw_power_cap")):
        writer = gpu_folder(**SMALL, **device)
        writer.tables["results.csv"][0] |= {"throttle": reason, "sm_clock_mhz": 1200}
        folders.append(load_folder(writer.write(tmp_path / reason)))
    (checks,) = [section for section in report.sections_of(runs(folders)) if section.id == "checks"]
    shown = {part.device: part.frame["throttle"].tolist() for part in checks.parts if part.title.startswith("Throttled measurements")}
    assert shown == {H200_NAME: ["sw_thermal"], H100_NAME: ["sw_power_cap"]}


# ---------------------------------------------------------------------------------------------------------- tuning tables


def tuned(path, variant, **context):
    writer = FolderWriter(**context)
    for n in [1 << k for k in range(6, 16)]:
        writer.measure(variant, "f16", n, 1 << 15, "replay")
        writer.measure("peer:hadacore", "f16", n, 1 << 15, "replay", time_us=0.01, limit_us=0.01, fraction_of_limit=1.0)
    return writer.write(path)


@pytest.fixture
def shipped(tmp_path, monkeypatch):
    """A folder for tables, with an H200's and an H100's made by the command."""
    monkeypatch.setattr(tune, "FOLDER", tmp_path / "auto")
    assert main(["tune", str(tuned(tmp_path / "h200 run", "mma_split")), "--ship"]) == 0
    assert main(["tune", str(tuned(tmp_path / "h100 run", "wgmma", device=H100)), "--ship"]) == 0
    found = sorted((tmp_path / "auto").glob("*.csv"))
    monkeypatch.setattr(tune, "SHIPPED", found)
    return found


def test_one_command_makes_the_table_of_a_device(shipped, tmp_path, capsys):
    assert [path.name for path in shipped] == ["h100.csv", "h200.csv"]
    text = shipped[0].read_text().splitlines()
    assert text[1:5] == [f"# device: {H100_NAME}", "# compute_capability: 90", "# sm_count: 132", "# source: h100 run"]
    assert {line.split(",")[-1] for line in text[6:]} == {"wgmma"}, "a kernel of others is no candidate"
    names = {"NVIDIA A100-SXM4-80GB": "a100.csv", "NVIDIA GeForce RTX 4090": "4090.csv", "NVIDIA L40S": "l40s.csv", "NVIDIA H200": "h200.csv"}
    assert {name: tune.shipped_name(name) for name in names} == names
    assert main(["tune", str(tmp_path / "h100 run"), "--ship", "--output", "x.csv"]) == 2
    assert "--ship and --output" in capsys.readouterr().err


def test_the_table_of_another_board_is_not_overwritten(shipped, tmp_path, capsys):
    before = shipped[1].read_text()
    folder = tuned(tmp_path / "nvl run", "wgmma", device=make_context()["device"] | {"name": "NVIDIA H200 NVL"})
    assert main(["tune", str(folder), "--ship"]) == 2 and shipped[1].read_text() == before
    assert "h200.csv is the table of NVIDIA H200, not of NVIDIA H200 NVL; --output FILE.csv writes one elsewhere" in capsys.readouterr().err
    assert main(["tune", str(tuned(tmp_path / "later", "wgmma")), "--ship"]) == 0 and shipped[1].read_text() != before, "its own is replaced"


@pytest.mark.parametrize(("name", "capability", "sms", "table"), [
    (H100_NAME, "9.0", 132, "h100.csv"), ("NVIDIA H100 NVL", "9.0", 132, "h100.csv"), ("NVIDIA H100 PCIe", "9.0", 114, "h100.csv"),
    (H200_NAME, "9.0", 132, "h200.csv"), ("NVIDIA A100", "8.0", 108, None),
])  # fmt: skip
def test_a_device_takes_the_table_of_its_name(shipped, name, capability, sms, table):
    """As DeviceClass.BoardsOfOneChipTakeTheTableOfThatChip of variants/auto/auto_test.cpp."""
    found = tune.table_for({"name": name, "compute_capability": capability, "sm_count": sms}, shipped)
    assert (found and found.path.name) == table


def test_the_nearest_point_of_a_table_is_that_of_the_dispatcher(tmp_path):
    """As TuningTable.ChoosesTheNearestNumberOfElements of variants/auto/auto_test.cpp."""
    path = tmp_path / "t.csv"
    path.write_text("# fwht tuning table 2\n# device: a test\n# compute_capability: 90\n# sm_count: 132\n# source: nowhere\n"
                    "dtype,n,elements,placement,launch,variant\nf16,4096,8192,in,ordinary,mma_split\nf16,4096,131072,in,ordinary,wgmma\n"
                    "f16,4096,8388608,out,ordinary,warp_shuffle\nf16,4096,8192,in,programmatic,butterflies\n"
                    "bf16,4096,8192,in,ordinary,mma_split\n")  # fmt: skip
    table = tune.read_table(path)
    for rows, placement, expected in ((1, "in", "mma_split"), (7, "in", "mma_split"), (8, "in", "wgmma"), (10**6, "in", "wgmma"), (1, "out", "warp_shuffle")):
        assert table.nearest("f16", 4096, 4096 * rows, placement) == expected
    for rows, placement, expected in ((7, "in", "butterflies"), (8, "in", "wgmma"), (1, "out", "warp_shuffle")):
        assert table.nearest("f16", 4096, 4096 * rows, placement, programmatic=True) == expected
    assert table.nearest("bf16", 4096, 4096, "out") == "mma_split" and table.nearest("f32", 4096, 4096, "in") == table.nearest("f16", 8192, 8192, "in") == ""


def test_which_of_a_device_says_what_auto_takes_and_by_which_table(shipped, tmp_path, capsys):
    folders = [str(h200_folder(tmp_path)), str(h100_folder(tmp_path))]
    capsys.readouterr()
    for name, variant, device, table in (("h100", "wgmma", H100_NAME, "h100.csv"), ("H200", "mma_split", H200_NAME, "h200.csv")):
        assert main(["which", "--n", "4096", "--rows", "8", "--device", name, *folders]) == 0
        out = capsys.readouterr().out
        assert out.endswith(f"auto takes {variant} on {device} by the tuning table {table}, its own\n") and out.count(device) > 1
    shipped[0].unlink()
    tune.SHIPPED.pop(0)
    assert main(["which", "--n", "4096", "--rows", "8", "--device", "h100", *folders]) == 0
    assert f"auto takes mma_split on {H100_NAME} by the tuning table h200.csv, its class's, measured on NVIDIA H200" in capsys.readouterr().out
    assert main(["which", "--n", "16", "--rows", "8", "--device", "h100", "--json", *folders]) == 0
    assert json.loads(capsys.readouterr().out)["auto"] == f"auto goes by its rule on {H100_NAME}: no tuning table of its class has f16, n = 16"
    assert main(["which", "--n", "4096", "--rows", "8", "--device", "a100", *folders]) == 2
    assert "no results of a device named 'a100'; there are those of NVIDIA H100 80GB HBM3; NVIDIA H200" in capsys.readouterr().err


def test_a_device_alone_is_named_by_no_heading(tmp_path):
    results = results_of(tmp_path)
    h200_folder(results)
    page = texts(tmp_path)["docs/results.md"]
    assert "### " not in page and page.count(H200_NAME) >= 1
