"""Whether this Python has what requirements files ask for: has_requirements.py FILE...; exit code 0 or 1, and on stdout
the first package that is missing or too old. Lines are `name>=version`. Needs nothing but Python itself."""

import re
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def numbers(text: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", text)[:3]]


def main(files: list[str]) -> int:
    for file in files:
        for line in Path(file).read_text(encoding="utf-8").splitlines():
            requirement = line.split("#")[0].strip()
            if not requirement:
                continue
            name, _, least = requirement.partition(">=")
            try:
                found = version(name.strip())
            except PackageNotFoundError:
                print(f"{requirement} is missing")
                return 1
            if numbers(found) < numbers(least):
                print(f"{requirement} is asked for, {found} is there")
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
