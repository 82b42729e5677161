"""python -m fwht.evaluate"""

import sys

try:
    from .program import main
except ModuleNotFoundError as error:
    sys.exit(f'error: {error}; pip install ".[evaluate]" in a checkout of fwht brings what is needed')

if __name__ == "__main__":
    sys.exit(main())
