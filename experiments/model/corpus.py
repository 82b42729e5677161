"""Text from Debian packages with permissive licences, as documents for training and validation.

The packages are fetched by `apt-get download` and unpacked by `dpkg-deb`: neither needs root, and nothing is installed.
"""

from __future__ import annotations

import collections
import gzip
import hashlib
import html
import lzma
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Source:
    """One Debian package: which of its files are text, under which licence, and how much of it is taken."""

    package: str
    kind: str
    licence: str
    megabytes: int


SOURCES = (
    Source("python3.11-doc", "rst", "PSF-2.0", 14),
    Source("libpython3.11-stdlib", "python", "PSF-2.0", 8),
    Source("postgresql-doc-15", "html", "PostgreSQL", 12),
    Source("wordnet-base", "wordnet", "WordNet-3.0", 14),
    Source("sqlite3-doc", "html", "public domain", 12),
    Source("python-django-doc", "html", "BSD-3-Clause", 12),
    Source("python-pandas-doc", "rst", "BSD-3-Clause", 8),
    Source("python-sympy-doc", "rst", "BSD-3-Clause", 6),
    Source("llvm-14-doc", "rst", "Apache-2.0 WITH LLVM-exception", 10),
    Source("nodejs-doc", "markdown", "MIT", 6),
    Source("apache2-doc", "manual", "Apache-2.0", 10),
    Source("golang-1.19-src", "go", "BSD-3-Clause", 16),
    Source("jargon-text", "text", "public domain", 3),
)

SUFFIXES = {
    "rst": (".txt", ".rst", ".txt.gz", ".rst.gz"),
    "python": (".py",),
    "html": (".html", ".html.gz"),
    "manual": (".html",),
    "markdown": (".md", ".md.gz"),
    "go": (".go",),
    "text": (".txt", ".txt.gz", ".gz"),
    "wordnet": ("data.noun", "data.verb", "data.adj", "data.adv"),
}

SHORTEST = 400  # characters: a shorter document teaches nothing
LONGEST = 200_000  # characters of one document
LONG_LINE = 30  # characters from which a line that comes again and again is boilerplate
MOST_REPEATS = 3
VALIDATION_SHARE = 40  # one document of this many
SEPARATOR = "\0"


class Unavailable(RuntimeError):
    """A package cannot be had here."""


def fetch(folder: Path, say: Callable[[str], None] = print) -> None:
    """Downloads and unpacks every package that `folder` lacks, one subfolder a package."""
    for source in SOURCES:
        target = folder / source.package
        if target.is_dir():
            continue
        say(f"fetching {source.package}")
        with tempfile.TemporaryDirectory(dir=folder) as work:
            try:
                _run("apt-get", "-q", "download", source.package, folder=work)
                (archive,) = Path(work).glob("*.deb")
                _run("dpkg-deb", "-x", archive.name, "files", folder=work)
            except (OSError, subprocess.CalledProcessError) as error:
                reason = (getattr(error, "stderr", "") or str(error)).strip().splitlines()[-1]
                raise Unavailable(f"{source.package} of Debian 12 cannot be fetched: {reason}") from error
            (Path(work) / "files").rename(target)


def _run(*command: str, folder: str) -> None:
    subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)


def documents(source: Source, folder: Path) -> Iterator[str]:
    """The texts of one unpacked package, cleaned of markup, in an order that does not follow their names."""
    files = [p for p in folder.rglob("*") if p.name.endswith(SUFFIXES[source.kind]) and p.is_file() and not p.is_symlink()]
    if source.kind == "manual":
        files = [p for p in files if "/manual/en/" in p.as_posix()]
    files.sort(key=lambda path: hashlib.sha256(path.relative_to(folder).as_posix().encode()).digest())
    for path in files:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        text = raw.decode("utf8", "replace")
        if source.kind == "wordnet":
            yield from _glossary(text)
        else:
            yield _tidy(_without_markup(text) if source.kind in ("html", "manual") else text)


def build(folder: Path, output: Path, say: Callable[[str], None] = print) -> None:
    """Writes train.txt.xz and validation.txt.xz and sources.csv: fetched, cleaned, each document once."""
    output.mkdir(parents=True, exist_ok=True)
    fetch(folder, say)
    repeats: collections.Counter[str] = collections.Counter()
    kept: dict[str, str] = {}
    table = ["package,licence,documents,bytes"]
    for source in SOURCES:
        size = count = 0
        for text in documents(source, folder / source.package):
            text = _without_repeats(text, repeats)[:LONGEST]
            key = hashlib.sha256(text.encode()).hexdigest()
            if len(text) < SHORTEST or key in kept:
                continue
            kept[key] = text
            size += len(text.encode())
            count += 1
            if size > source.megabytes * 1_000_000:
                break
        table.append(f"{source.package},{source.licence},{count},{size}")
        say(f"{source.package}: {count} documents, {size / 1e6:.1f} MB")
    for name, is_validation in (("train", False), ("validation", True)):
        texts = [kept[key] for key in sorted(kept) if (int(key[:4], 16) % VALIDATION_SHARE == 0) is is_validation]
        (output / f"{name}.txt.xz").write_bytes(lzma.compress(SEPARATOR.join(texts).encode(), preset=3))
    (output / "sources.csv").write_text("\n".join(table) + "\n")


def read(output: Path, name: str) -> list[str]:
    """The documents of `train` or `validation`."""
    return lzma.decompress((output / f"{name}.txt.xz").read_bytes()).decode().split(SEPARATOR)


def _without_markup(text: str) -> str:
    body = re.search(r"<body.*?</body>", text, re.S | re.I)
    text = re.sub(r"<(script|style|nav|head)\b.*?</\1>", " ", body.group(0) if body else text, flags=re.S | re.I)
    text = re.sub(r"<(p|div|li|tr|h\d|br|pre|dt|dd)\b[^>]*>", "\n", text, flags=re.I)
    return html.unescape(re.sub(r"<[^>]+>", "", text))


def _tidy(text: str) -> str:
    text = re.sub(r"[ \t]+\n", "\n", text.replace("\r", "").replace(SEPARATOR, ""))
    return re.sub(r"[-=*~#_.]{8,}", "-" * 8, re.sub(r"\n{3,}", "\n\n", text)).strip()


def _without_repeats(text: str, repeats: collections.Counter[str]) -> str:
    lines = []
    for line in text.split("\n"):
        words = line.strip()
        if len(words) > LONG_LINE:
            repeats[words] += 1
            if repeats[words] > MOST_REPEATS:
                continue
        lines.append(line)
    return _tidy("\n".join(lines))


def _glossary(text: str) -> Iterator[str]:
    """WordNet's data files as lines `word, word: meaning`, sixty to a document (format: wndb(5WN))."""
    rows = []
    for line in text.splitlines():
        if line.startswith("  ") or " | " not in line:
            continue
        fields, meaning = line.split(" | ", 1)
        words = fields.split(" ")
        names = [words[4 + 2 * i].replace("_", " ") for i in range(int(words[3], 16))]
        rows.append(f"{', '.join(names)}: {meaning.strip()}")
    for start in range(0, len(rows), 60):
        yield "\n".join(rows[start : start + 60])
