"""``python -m otel_loopeval``: the ``otel-loopeval`` command."""

import sys

from otel_loopeval.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
