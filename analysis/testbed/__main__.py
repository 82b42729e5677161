"""python3 -m analysis.testbed COMMAND ...: what ./testbed runs."""

import os
import sys

from .commands import COMMANDS, help_text, usage
from .machine import ROOT, refuse, version

HELP = ("help", "-h", "--help")


def main(arguments: list[str]) -> int:
    name, *rest = arguments or ["help"]
    if name == "--version":
        print(f"fwht {version()}")
        return 0
    if name in HELP:
        if not rest or rest[0] in HELP:
            print(help_text())
            return 0
        name, rest = rest[0], ["--help"]
    if name not in COMMANDS:
        refuse(f"unknown command '{name}'; ./testbed help lists the commands.")
    if {"-h", "--help"} & set(rest[: rest.index("--")] if "--" in rest else rest):
        print(usage(COMMANDS[name]))
        return 0
    try:
        return COMMANDS[name](rest)
    except BrokenPipeError:
        raise
    except OSError as error:  # a name that is too long, a folder that may not be entered, a full disk
        place = f"{str(error.filename)[:80]}: " if error.filename else ""
        refuse(f"{place}{error.strerror or error}.")


if __name__ == "__main__":
    # The script put the root before what the caller had; programs that the commands start get the caller's.
    os.environ["PYTHONPATH"] = os.environ.get("PYTHONPATH", "").removeprefix(str(ROOT)).removeprefix(os.pathsep)
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # the reader (head, less) has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
