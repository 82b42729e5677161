"""The lock file is that of the requirements: each of them is pinned in it, at or above the least version, every pin has a
hash, and no address of an index stands in it. lock_test.py ANALYSIS_FOLDER"""

import re
import sys
from pathlib import Path


def numbers(text: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", text)[:3]]


def faults(folder: Path) -> list[str]:
    lock = (folder / "requirements.lock").read_text(encoding="utf-8")
    pins: dict[str, list[str]] = {}
    found = []
    # A pin and its hashes are one logical line.
    for line in re.sub(r"\\\n", " ", lock).splitlines():
        if match := re.match(r"([a-z0-9._-]+)==([^ ;]+)", line):
            pins.setdefault(match[1], []).append(match[2])
            if "--hash=sha256:" not in line:
                found.append(f"{match[1]} {match[2]} has no hash")
    if re.search(r"https?://|--(extra-)?index-url", lock):
        found.append("the lock names an address")
    for name in ("requirements.txt", "requirements-test.txt"):
        for requirement in (folder / name).read_text(encoding="utf-8").split():
            package, _, least = requirement.partition(">=")
            versions = pins.get(package.lower(), [])
            if not versions or any(numbers(version) < numbers(least) for version in versions):
                found.append(f"{requirement} of {name} is not in the lock, which has {versions or 'none'}")
    return found


if __name__ == "__main__":
    wrong = faults(Path(sys.argv[1]))
    print("\n".join(wrong) or "requirements.lock is that of the requirements")
    sys.exit(bool(wrong))
