"""A build's sources are those of the commit that the table names for their hash."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from analysis import sources
from analysis.conftest import make_context
from analysis.load import ResultsError, committed_folders, load_context, load_folder


def in_history(commit: str) -> bool:
    return subprocess.run(["git", "-C", sources.ROOT, "cat-file", "-e", f"{commit}^{{commit}}"], check=False, capture_output=True).returncode == 0


def test_every_commit_of_the_table_has_the_sources_that_the_table_says():
    table = sources.named()
    known = {sources_hash: commit for sources_hash, commit in table.items() if in_history(commit)}
    if table and not known:
        pytest.skip("skipped: the history of the repository is not here")
    assert {sources.hash_of(commit): commit for commit in known.values()} == known


def read_context(path: Path) -> dict[str, Any]:
    file = path / "context.json"
    return json.loads(file.read_text()) if file.exists() else {"dirty": False}


def test_the_table_names_what_folders_have_and_nothing_else():
    contexts = [read_context(folder.path) for folder in committed_folders()]
    assert sources.named().keys() == {context["sources_hash"] for context in contexts if context["dirty"]}


def test_a_dirty_build_of_named_sources_is_that_commit(tmp_path, monkeypatch):
    for name, sources_hash in (("named", "c" * 64), ("other", "d" * 64)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "context.json").write_text(json.dumps(make_context(dirty=True, sources_hash=sources_hash)))
    monkeypatch.setattr(sources, "named", lambda: {"c" * 64: "e" * 40})
    context = load_context(tmp_path / "named")
    assert (context["commit"], context["dirty"]) == ("e" * 40, False)
    assert load_context(tmp_path / "other")["dirty"]
    with pytest.raises(ResultsError, match="comes from a dirty build"):
        load_folder(tmp_path / "other")


def test_the_hash_is_that_of_the_build(tmp_path):
    """cmake/write_build_info.cmake computes it for the files of a tree, this module for those of a commit."""
    if not in_history("HEAD"):
        pytest.skip("skipped: the history of the repository is not here")
    tree = tmp_path / "tree"
    tree.mkdir()
    archive = subprocess.run(["git", "-C", sources.ROOT, "archive", "HEAD", "--", *sources.FOLDERS, "experiments", "CMakeLists.txt", ":!experiments/results"],
                             check=True, stdout=subprocess.PIPE).stdout  # fmt: skip
    subprocess.run(["tar", "xf", "-", "-C", tree], input=archive, check=True)
    script = sources.ROOT / "cmake" / "write_build_info.cmake"
    subprocess.run(["cmake", f"-Dsource_dir={tree}", f"-Doutput={tmp_path}/info.hpp", "-P", script], check=True, stdout=subprocess.DEVNULL)
    assert f'kSourcesHash = "{sources.hash_of("HEAD")}"' in (tmp_path / "info.hpp").read_text()
