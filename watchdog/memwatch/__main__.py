"""`memwatch` and `python -m memwatch`. As PID 1 of a container it leaves a small init there and goes on beside it."""

import os
import sys


def main() -> int:
    """Run one command; the exit code."""
    if os.getpid() == 1:
        from memwatch.app.pid1 import fork_from_pid1

        announce = fork_from_pid1()
        from memwatch.cli.main import main

        return main(announce=announce)
    from memwatch.cli.main import main

    return main()


if __name__ == "__main__":
    sys.exit(main())
