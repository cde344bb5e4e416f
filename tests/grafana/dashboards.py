"""Reads the committed dashboards, as Grafana does."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.environments import ROOT

FOLDER = ROOT / "collector-config" / "grafana"
FILES = sorted((FOLDER / "dashboards").glob("*.json"))

Panel = dict[str, Any]


def dashboard(path: Path) -> dict[str, Any]:
    """A dashboard."""
    return json.loads(path.read_text(encoding="utf-8"))


def panels(board: dict[str, Any]) -> Iterator[Panel]:
    """Panels, those in closed rows too, without the rows."""
    for panel in board["panels"]:
        if panel["type"] == "row":
            yield from panel.get("panels", [])
        else:
            yield panel


@dataclass(frozen=True, slots=True)
class Target:
    """A query of a panel.

    Attributes:
        board: Name of the dashboard's file.
        panel: Title of the panel.
        query: As it is in the JSON.
    """

    board: str
    panel: str
    query: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.board}/{self.panel}/{self.query['refId']}"


def targets(kind: str) -> list[Target]:
    """All queries to a kind of data source."""
    return [
        Target(path.stem, panel["title"], query)
        for path in FILES
        for panel in panels(dashboard(path))
        for query in panel["targets"]
        if query["datasource"]["type"] == kind
    ]
