"""``python -m posbias``."""

import sys

from posbias.cli import main

sys.exit(main())
