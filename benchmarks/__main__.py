"""Run every benchmark and print its table; ``--json FILE`` writes the figures too."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from benchmarks import layer, planning


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--runs", type=int, default=15, help="pairs of timed steps")
    options = parser.parse_args()
    figures = {"layer": layer.run(options.runs), "planning": planning.run()}
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
