"""python -m analysis COMMAND ..."""

import sys

from .cli import main

sys.exit(main())
