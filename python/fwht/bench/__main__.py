import sys

try:
    from ._run import main
except ModuleNotFoundError as missing:
    if missing.name != "torch":
        raise
    sys.exit("python -m fwht.bench: PyTorch is missing, and every peer is called through it (pip install torch)")

sys.exit(main())
