"""The committed dashboards: equal to what their code builds, taken by Grafana, and fit for a reader."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from grafana.dashboards import FILES, FOLDER, Panel, dashboard, panels, targets
from jsonschema import Draft7Validator

SCHEMA = json.loads(Path(__file__).with_name("grafana.schema.json").read_text(encoding="utf-8"))
WIDTH = 24


def built(folder: Path, *arguments: str) -> dict[str, str]:
    pytest.importorskip("grafana_foundation_sdk", reason="the Grafana SDK needs Python 3.11")
    command = [sys.executable, str(FOLDER / "build.py"), "--output", str(folder), *arguments]
    subprocess.run(command, check=True)
    return {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.json")}


def complaints(board: dict[str, Any]) -> list[str]:
    return [
        f"{list(error.absolute_path)}: {error.message}"
        for error in Draft7Validator(SCHEMA).iter_errors(board)
    ]


@pytest.fixture(params=FILES, ids=lambda path: path.stem)
def board(request: pytest.FixtureRequest) -> dict[str, Any]:
    return dashboard(request.param)


def test_there_are_three() -> None:
    assert {path.stem: dashboard(path)["uid"] for path in FILES} == {
        "fleet": "loopeval-fleet",
        "loop-health": "loopeval-loop-health",
        "one-agent": "loopeval-agent",
    }


def test_the_json_is_what_the_code_builds(tmp_path: Path) -> None:
    assert built(tmp_path) == {path.name: path.read_text(encoding="utf-8") for path in FILES}


def test_grafana_takes_them(board: dict[str, Any]) -> None:
    assert complaints(board) == []


def test_grafana_takes_those_for_tempo(tmp_path: Path) -> None:
    boards = {name: json.loads(text) for name, text in built(tmp_path, "--traces", "tempo").items()}

    assert {name: complaints(board) for name, board in boards.items()} == {
        "fleet.json": [],
        "loop-health.json": [],
        "one-agent.json": [],
    }
    searches = [
        query["query"]
        for board in boards.values()
        for panel in panels(board)
        for query in panel["targets"]
        if query["datasource"]["type"] == "tempo"
    ]
    assert sorted(searches) == [
        '{ resource.service.name =~ "${service:regex}" && span.gen_ai.agent.name = "$agent" && span.loopeval.health.passed = false }',  # noqa: E501
        '{ resource.service.name =~ "${service:regex}" && span.loopeval.health.passed = false }',
    ]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("panels", 0, "type"), "no-such-panel"),
        (("panels", 0, "fieldConfig", "defaults", "decimals"), "one"),
        (("panels", 0, "options", "graphMode"), "loud"),
        (("panels", 0, "options", "surprise"), True),
        (("templating", "list", 0, "refresh"), 9),
        (("time", "from"), 6),
        (("surprise",), True),
    ],
)
def test_the_schema_refuses_what_grafana_does_not_know(path: tuple[Any, ...], value: Any) -> None:
    broken = dashboard(FOLDER / "dashboards" / "loop-health.json")
    place: Any = broken
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value

    assert len(complaints(broken)) > 0


def test_every_panel_says_what_it_shows_in_which_unit_and_what_an_empty_one_means(
    board: dict[str, Any],
) -> None:
    for panel in panels(board):
        defaults = panel["fieldConfig"]["defaults"]
        assert len(panel["description"]) > 10, panel["title"]
        assert defaults["noValue"], panel["title"]
        assert defaults["unit"] in {"short", "percentunit", "s", "currencyUSD"}, panel["title"]


def test_units_are_those_of_what_is_shown(board: dict[str, Any]) -> None:
    for panel in panels(board):
        defaults = panel["fieldConfig"]["defaults"]
        expressions = [query.get("expr", "") for query in panel["targets"]]
        single = panel["type"] in {"stat", "timeseries", "bargauge"}
        if single and any("_cost_USD_" in expression for expression in expressions):
            assert defaults["unit"] == "currencyUSD", panel["title"]
        if single and any("_duration_seconds_" in expression for expression in expressions):
            assert defaults["unit"] == "s", panel["title"]
        if (
            panel["type"] == "timeseries"
            and defaults["unit"] == "percentunit"
            and "ratio1h" in expressions[0]
        ):
            assert (defaults["min"], defaults["max"]) == (0, 1), panel["title"]


def test_panels_neither_overlap_nor_leave_the_grid(board: dict[str, Any]) -> None:
    taken: set[tuple[int, int]] = set()
    # A closed row's panels are laid out below it; what follows moves down as it opens.
    for panel in board["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert max(x for x, _ in cells) < WIDTH, panel["title"]
        assert not cells & taken, panel["title"]
        taken |= cells


def test_panels_have_ids_of_their_own(board: dict[str, Any]) -> None:
    rows = [panel for panel in board["panels"] if panel["type"] == "row"]
    ids = [panel["id"] for panel in (*panels(board), *rows)]

    assert sorted(ids) == list(range(1, len(ids) + 1))


GIVEN_BY_GRAFANA = {"__all", "__range", "__interval", "__url_time_range", "__field", "__data"}


def test_only_variables_that_there_are_are_used(board: dict[str, Any]) -> None:
    names = {variable["name"] for variable in board["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(board)))

    assert used - GIVEN_BY_GRAFANA <= names
    assert names - {"traces"} <= used  # the fleet has no table of traces, but hands the choice on


def test_variables_choose_data_sources_service_environment_and_agent() -> None:
    names = {path.stem: [each["name"] for each in dashboard(path)["templating"]["list"]] for path in FILES}

    assert names == {
        "fleet": ["metrics", "traces", "environment", "before", "after"],
        "loop-health": ["metrics", "traces", "environment", "service", "agent"],
        "one-agent": ["metrics", "traces", "environment", "service", "agent"],
    }


def test_dashboards_link_to_each_other_and_keep_what_was_chosen(board: dict[str, Any]) -> None:
    (link,) = board["links"]
    assert (link["type"], link["tags"], link["includeVars"], link["keepTime"]) == (
        "dashboards",
        ["otel-loopeval"],
        True,
        True,
    )
    assert board["tags"] == ["otel-loopeval"]
    linked = set(re.findall(r"/d/([\w-]+)", json.dumps(board)))
    assert linked <= {"loopeval-agent"}


def test_a_series_of_an_agent_leads_to_its_dashboard() -> None:
    def is_by_agent(panel: Panel) -> bool:
        return panel["type"] == "timeseries" and any(
            query["legendFormat"].endswith("{{gen_ai_agent_name}}") for query in panel["targets"]
        )

    without = [
        panel["title"]
        for panel in panels(dashboard(FOLDER / "dashboards" / "loop-health.json"))
        if is_by_agent(panel) and not panel["fieldConfig"]["defaults"].get("links")
    ]
    assert without == ["Late spans"]


def test_exemplars_are_asked_for_where_a_single_run_explains_the_panel() -> None:
    asking = {target.panel for target in targets("prometheus") if target.query.get("exemplar")}

    assert asking == {
        "Best score over threshold",
        "Doom loops by agent",
        "Doom loops by kind",
        "Duration of iterations",
        "Duration of runs",
        "Healthy runs by version",
        "Iterations of runs",
        "Iterations to success",
        "Runs by outcome",
        "Score of iterations over threshold",
        "Use of the token budget",
    }


def test_unhealthy_runs_are_looked_up_in_jaeger() -> None:
    searches = {(target.board, target.query["service"], target.query["tags"]) for target in targets("jaeger")}

    assert searches == {
        ("loop-health", "$service", "loopeval.health.passed=false"),
        ("one-agent", "$service", 'gen_ai.agent.name="$agent" loopeval.health.passed=false'),
    }


def test_a_variable_of_one_value_is_compared_as_it_is() -> None:
    # Grafana escapes regular expressions only where several values can be chosen: "writer (v2)" is none.
    single = {
        f'{label}="{variable}"'
        for target in targets("prometheus")
        for label, variable in re.findall(r'(\w+)=~?"(\$\w+)"', target.query["expr"])
        if (target.board, variable) in {("one-agent", "$agent"), ("fleet", "$before"), ("fleet", "$after")}
    }
    patterns = {
        variable
        for target in targets("prometheus")
        for variable in re.findall(r'=~"(\$\w+)"', target.query["expr"])
        if (target.board, variable) != ("loop-health", "$agent")
    }

    assert single == {
        'gen_ai_agent_name="$agent"',
        'service_version="$after"',
        'service_version="$before"',
    }
    assert patterns == {"$environment", "$service"}
