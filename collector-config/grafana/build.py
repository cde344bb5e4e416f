"""Write the dashboards: ``python collector-config/grafana/build.py``.

Needs otel-loopeval and ``grafana-foundation-sdk==0.0.21`` (both in the extra ``dev``), Python 3.11.
"""

import argparse
import json
from pathlib import Path
from typing import Any, Final

from builder import fleet, loop_health, one_agent
from grafana_foundation_sdk.cog.encoder import JSONEncoder

HERE: Final = Path(__file__).resolve().parent

DASHBOARDS: Final = {
    "loop-health": loop_health.build,
    "one-agent": one_agent.build,
    "fleet": fleet.build,
}


def main() -> None:
    """Build each dashboard and write it."""
    parser = argparse.ArgumentParser(description="Write the Grafana dashboards of otel-loopeval.")
    parser.add_argument(
        "--traces",
        choices=("jaeger", "tempo"),
        default="jaeger",
        help="where runs are looked up (default: jaeger)",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=HERE / "dashboards",
        metavar="FOLDER",
        help="where to write them (default: dashboards/ beside this file)",
    )
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    for name, build in DASHBOARDS.items():
        plain = json.loads(json.dumps(build(options.traces).build(), cls=JSONEncoder, allow_nan=False))
        _number(plain["panels"])
        for variable in plain["templating"]["list"]:
            # The SDK writes settings of interval variables into all of them, and Grafana knows no others.
            for setting in ("auto", "auto_count", "auto_min"):
                variable.pop(setting, None)
        text = json.dumps(plain, indent=2, sort_keys=True, allow_nan=False)
        (options.output / f"{name}.json").write_text(f"{text}\n", encoding="utf-8")


def _number(panels: list[dict[str, Any]], first: int = 1) -> int:
    """Give panels, and those inside closed rows, an ID each; the next one that is free."""
    for panel in panels:
        panel["id"] = first
        first = _number(panel.get("panels", []), first + 1)
    return first


if __name__ == "__main__":
    main()
