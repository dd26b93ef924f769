"""`python -m muster` is the command `muster`."""

import sys

from muster.cli import main

sys.exit(main())
