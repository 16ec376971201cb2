"""`onefold`, and `python -m onefold`. It loads nothing before Ctrl-C is handled."""

from __future__ import annotations

import sys

from onefold.ending import INTERRUPTED, loading


def main() -> int:
    try:
        with loading():
            from onefold.cli import main as run
        return run()
    except KeyboardInterrupt:
        print("onefold: interrupted", file=sys.stderr)
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
