"""Every benchmark of the package, one table after the other.

    python tests/benchmarks/run.py            # all of them, some minutes
    python tests/benchmarks/run.py tracing    # one of them

Each runs in a process of its own, and each is a script of its own too. Ratios are against a rival measured
in the same run; times are of this machine.
"""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def main(names: list[str]) -> int:
    """Run the named benchmarks, or all; returns the exit status."""
    scripts = {path.stem.removeprefix("bench_"): path for path in sorted(HERE.glob("bench_*.py"))}
    unknown = [name for name in names if name not in scripts]
    if unknown:
        print(f"no benchmark {', '.join(unknown)}; there are: {', '.join(scripts)}", file=sys.stderr)
        return 2
    status = 0
    for name in names or scripts:
        print(f"\n=== {name}", flush=True)
        status |= subprocess.run([sys.executable, str(scripts[name])], check=False).returncode
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
