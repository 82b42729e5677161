"""Evaluations of models: what is read, refused, shown. testdata/evaluation.json was written by python -m fwht.evaluate."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from analysis import pages, report
from analysis.cli import main
from analysis.load import ResultsError
from analysis.models import NAME, committed_evaluations, load_evaluation

DATA = Path(__file__).with_name("testdata") / NAME


def written(folder: Path, **changes) -> Path:
    folder.mkdir(parents=True)
    (folder / NAME).write_text(json.dumps(json.loads(DATA.read_text()) | changes))
    return folder


def changed(part: str, **values) -> dict:
    return {part: json.loads(DATA.read_text())[part] | values}


def test_rows_are_those_of_the_blocks(tmp_path):
    evaluation = load_evaluation(written(tmp_path / "run"))
    blocks = json.loads(DATA.read_text())["rows"]
    assert len(evaluation.rows) == len(blocks) == 9
    for row in evaluation.rows.to_dict("records"):
        values = blocks[f"{row['format']}|{row['rotation']}"]["kl"]
        assert row["kl"] == pytest.approx(1e3 * sum(values) / len(values)) and row["kl_low"] <= row["kl"] <= row["kl_high"]
    found = {(row["format"], row["rotation"]): row for row in evaluation.rows.to_dict("records")}
    assert [found["kv4", mode]["verdict"] for mode in ("folded", "rotated")] == ["", "helps"]
    assert found["kv4", "rotated"]["recovered"] == pytest.approx(1 - found["kv4", "rotated"]["kl"] / found["kv4", "folded"]["kl"])
    assert found["w4a4-nvfp4", "rotated"]["verdict"] == "hurts"
    assert set(evaluation.refused["format"]) == {"w4a16"}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"ended": None}, "run is an evaluation that did not finish"),
        (changed("about", library={"commit": "0123456789abcdef", "dirty": True}), "comes from a dirty build .* commit 0123456789"),
        (changed("about", blocks="8"), "run: evaluation.json: about.blocks"),
        ({"summary": [{"format": "kv4"}]}, "run: evaluation.json: summary"),
        ({"cost": {"1024": {"R3": 1}}}, "run: evaluation.json: cost.1024.products is missing"),
        ({"cost": {"many": {"R3": 1, "R4": 1, "products": 1}}}, r"run: evaluation.json: cost.many.\[key\] is 'many'"),
        ({"cost": {"1": {"R3": 1, "R4": 1, "products": 0}}}, "run: evaluation.json: cost.1.products is 0"),
        ({"refused": {"mxfp4": "no"}}, r"run: evaluation.json: refused.mxfp4.\[key\] is 'mxfp4'"),
        ({"refused": {"a|b|c": "no"}}, "run: evaluation.json: refused.a"),
    ],
)
def test_what_is_refused(tmp_path, changes, sentence, capsys):
    folder = written(tmp_path / "run", **changes)
    with pytest.raises(ResultsError, match=sentence):
        load_evaluation(folder)
    assert main(["report", str(folder), "--output", str(tmp_path / "x.html")]) == 2
    assert capsys.readouterr().err.count("error: ") == 1


def test_the_part_has_a_chart_a_table_and_what_was_not_measured(tmp_path):
    cost = {"1": {"R3": 1.5, "R4": 3.0, "products": 90.0}}
    one, other = load_evaluation(written(tmp_path / "a", cost=cost)), load_evaluation(written(tmp_path / "b"))
    (section,) = report.sections_of([], [one, other])
    ids = ["model-kl", "model-table", "model-outliers", "model-cost", "model-refused"]
    assert section.id == "models" and [part.id for part in section.parts] == [f"{id}-1" for id in ids] + [f"{id}-2" for id in ids if id != "model-cost"]
    (row,) = section.parts[3].frame.to_dict("records")
    assert row["added"] == pytest.approx(0.05) and row["tokens"] == 1
    assert report.sections_of([]) == []


def test_the_report_of_a_model_alone(tmp_path, capsys):
    folder = written(tmp_path / "run")
    assert main(["report", str(folder), "--output", str(tmp_path / "x.html")]) == 0
    page = (tmp_path / "x.html").read_text()
    assert "fwht on demo" in page and "0 measurements of 0 runs and 1 model" in capsys.readouterr().err
    assert json.loads(DATA.read_text())["about"]["model_sha256"] in page


def test_the_page_has_the_better_baseline_beside_rotated(tmp_path):
    rows = [
        {"format": "kv4", "rotation": name, "perplexity": 9.0, "kl": kl, "kl_low": kl, "kl_high": kl, "same": 0.5, "recovered": gone, "verdict": verdict}
        for name, kl, gone, verdict in (("plain", 0.02, None, ""), ("folded", 0.01, None, ""), ("r3", 0.006, 0.4, "helps"), ("rotated", 0.005, 0.5, "helps"))
    ]
    found = load_evaluation(written(tmp_path / "run", summary=rows))
    assert found.verdicts[["format", "base_rotation", "base_kl", "kl"]].to_numpy().tolist() == [["kv4", "folded", 10.0, 5.0]]
    page = pages.render("models.md.j2", **pages.model_values(tmp_path) | {"evaluations": [found]})
    assert "| kv4 | 10 [10, 10] | 5 [5, 5] | 9.00, 9.00 | 50.0, 50.0 | helps |" in page and "| kv4 | 6 |" in page
    assert "No evaluation" in pages.render("models.md.j2", evaluations=[])


def test_the_newest_committed_evaluation_of_a_model_and_device(tmp_path):
    results = tmp_path / "experiments" / "results"
    written(results / "a")
    written(results / "b", begun="2030-01-01T00:00:00Z")
    written(results / "c", ended=None)
    written(results / "d", **changed("about", device="NVIDIA H200"))
    git = [shutil.which("git") or "git", "-C", str(tmp_path)]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "."], check=True)
    assert {e.name for e in committed_evaluations(tmp_path)} == {"b", "d"}
