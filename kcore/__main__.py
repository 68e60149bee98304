"""Runs the command `kcore` for `python -m kcore`."""

import sys

from kcore.cli import main

if __name__ == "__main__":
    sys.exit(main())
