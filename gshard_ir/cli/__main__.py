"""``python -m gshard_ir.cli``: the ``gshard`` command."""

import sys

from gshard_ir.cli import main

sys.exit(main())
