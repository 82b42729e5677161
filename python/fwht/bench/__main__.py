import sys

from ._run import main

sys.exit(main())
