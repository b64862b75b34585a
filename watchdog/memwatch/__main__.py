"""`memwatch` and `python -m memwatch`."""

import sys

from memwatch.cli import main

if __name__ == "__main__":
    sys.exit(main())
