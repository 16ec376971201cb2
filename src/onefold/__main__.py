"""`python -m onefold` is `onefold`."""

from __future__ import annotations

import sys

from onefold.cli import main

if __name__ == "__main__":
    sys.exit(main())
