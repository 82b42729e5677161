"""What `python -m fwht.evaluate` wrote of a model: evaluation.json, read and held to its form."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
from pydantic import Field

from .load import ROOT, committed_files
from .schema import ResultsError, Strict, present, read_json

NAME = "evaluation.json"
BASELINES = ("plain", "folded")


class Library(Strict):
    commit: str
    dirty: bool


class About(Strict):
    model: str
    model_sha256: str
    family: str
    blocks: int
    length: int
    text_sha256: str
    dtype: str
    device: str
    seed: int
    fwht: str
    library: Library
    python: str
    torch: str
    transformers: str
    numpy: str


class Row(Strict):
    """KL in nats a token, with its interval of 95 %."""

    format: str
    rotation: str
    perplexity: float
    kl: float
    kl_low: float
    kl_high: float
    same: float
    recovered: float | None
    verdict: str


class Site(Strict):
    """Kurtosis over the channels of a token, and largest over RMS, of a layer's input before and after rotation."""

    layer: int
    site: str
    kurtosis: float
    kurtosis_rotated: float
    largest: float
    largest_rotated: float
    first: float
    first_rotated: float


class Cost(Strict):
    """Microseconds a layer."""

    products: Annotated[float, Field(gt=0)]
    R3: float
    R4: float


Tokens = Annotated[str, Field(pattern="^[1-9][0-9]{0,17}$")]
FormatAndRotation = Annotated[str, Field(pattern=r"^[^|]+\|[^|]+$")]


class Written(Strict):
    about: About
    begun: str
    ended: str | None = None
    summary: list[Row]
    refused: dict[FormatAndRotation, str]
    outliers: list[Site] = Field(default_factory=list)
    cost: dict[Tokens, Cost] = Field(default_factory=dict)


class Rows(Strict):
    """What `python -m fwht.bench attention`, `chains`, `walsh` and `long` write, each to a file of its name."""

    about: dict[str, Any]
    rows: list[dict[str, Any]]


class Layers(Strict):
    """layers.json of `python -m fwht.bench layers`."""

    about: dict[str, Any]
    times: list[dict[str, Any]]
    errors: list[dict[str, Any]]
    host: list[dict[str, Any]]


@dataclass(frozen=True)
class Evaluation:
    """One folder."""

    path: Path
    written: Written

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def short(self) -> str:
        """Model, device and commit: what tells evaluations apart on a page."""
        about = self.written.about
        return f"{about.model}, {about.device}, {about.library.commit[:10]}{'+dirty' if about.library.dirty else ''}"

    @property
    def rows(self) -> pd.DataFrame:
        """By format and rotation; KL in 1e-3 nats a token."""
        frame = pd.DataFrame([row.model_dump() for row in self.written.summary], columns=list(Row.model_fields))
        frame[["kl", "kl_low", "kl_high"]] *= 1e3
        return frame.assign(recovered=frame["recovered"].astype(float))

    @property
    def verdicts(self) -> pd.DataFrame:
        """By format: `base`, the better of plain and folded, beside what all rotations do (`rotated`); both rows as they were measured."""
        rows = self.rows
        base = rows[rows["rotation"].isin(BASELINES)].sort_values("kl", kind="stable").drop_duplicates("format")
        turned = rows[(rows["rotation"] == "rotated") & (rows["verdict"] != "")]
        return turned.merge(base.set_index("format").add_prefix("base_"), left_on="format", right_index=True)

    @property
    def by_rotation(self) -> pd.DataFrame:
        """Rows of the rotations between the baselines and `rotated`, of the formats that were measured with some."""
        rows = self.rows
        return rows[~rows["rotation"].isin((*BASELINES, "rotated"))]

    @property
    def outliers(self) -> pd.DataFrame:
        return pd.DataFrame([site.model_dump() for site in self.written.outliers], columns=list(Site.model_fields))

    @property
    def cost(self) -> pd.DataFrame:
        """By number of tokens: microseconds a layer, and the rotations' share of the matrix products."""
        found = self.written.cost.items()
        return pd.DataFrame([{"tokens": int(tokens), **us.model_dump(), "added": (us.R3 + us.R4) / us.products} for tokens, us in found])

    @property
    def refused(self) -> pd.DataFrame:
        rows = [key.split("|") + [reason] for key, reason in self.written.refused.items()]
        return pd.DataFrame(rows, columns=["format", "rotation", "message"])

    def provenance(self) -> list[tuple[str, str]]:
        """What a reader needs to repeat the run."""
        written, about = self.written, self.written.about
        return [
            ("model", f"{about.model} ({about.family}), sha256 {about.model_sha256}"),
            ("text", f"{about.blocks} blocks of {about.length} tokens, sha256 {about.text_sha256}"),
            ("device", f"{about.device}, {about.dtype}; seed {about.seed}"),
            ("commit", about.library.commit + (" with UNCOMMITTED CHANGES" if about.library.dirty else ", clean")),
            ("versions", f"fwht {about.fwht}, Python {about.python}, PyTorch {about.torch}, transformers {about.transformers}, NumPy {about.numpy}"),
            ("run", f"{written.begun} to {written.ended or 'unknown, INCOMPLETE'}"),
        ]


def is_evaluation(path: Path | str) -> bool:
    return present(Path(path) / NAME)


def load_evaluation(path: Path | str, *, allow_dirty=False, allow_incomplete=False) -> Evaluation:
    """Reads a folder; ResultsError as `load.load_folder`."""
    path = Path(path).resolve()
    found = Evaluation(path, read_json(path / NAME, Written))
    if found.written.ended is None and not allow_incomplete:
        raise ResultsError(f"{path.name} is an evaluation that did not finish; --allow-incomplete reads it anyway")
    if found.written.about.library.dirty and not allow_dirty:
        commit = found.written.about.library.commit[:10]
        raise ResultsError(f"{path.name} comes from a dirty build (sources differ from commit {commit}); --allow-dirty reads it anyway")
    return found


def committed_evaluations(root: Path = ROOT) -> list[Evaluation]:
    """Complete and clean ones that git knows: the newest of each model and device, newest first."""
    found = []
    for file in committed_files(NAME, root):
        try:
            found.append(load_evaluation(file.parent))
        except ResultsError:
            continue
    found.sort(key=lambda evaluation: evaluation.written.begun, reverse=True)
    firsts: dict[tuple[str, str], Evaluation] = {}
    for evaluation in found:
        firsts.setdefault((evaluation.written.about.model, evaluation.written.about.device), evaluation)
    return list(firsts.values())
