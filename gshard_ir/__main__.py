"""``python -m gshard_ir`` is the ``gshard`` command."""

import sys

from gshard_ir.cli import main

sys.exit(main())
