"""The other three Quick Starts in one process, since importing the framework takes longest."""

import runpy
from pathlib import Path

for name in ("run_until", "callback", "goal"):
    runpy.run_path(str(Path(__file__).with_name(f"quick_start_{name}.py")))
