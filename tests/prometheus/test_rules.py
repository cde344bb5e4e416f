"""The rules of Prometheus: checked and unit-tested by promtool, each alert both ways."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml
from support.backends import need
from support.environments import ROOT

HERE = Path(__file__).parent
CONFIG = ROOT / "collector-config" / "prometheus"
UNIT_TESTS = sorted(HERE.glob("*_test.yml"))
ALERTS = [
    "LoopDoomLoopFired",
    "LoopEvalErrors",
    "LoopHealthDegraded",
    "LoopIterationsWasted",
    "LoopNotConverging",
    "LoopRunStuck",
    "LoopTelemetryAbsent",
    "LoopTokenBudgetExceeded",
    "LoopTokenVelocity",
]


def promtool(*arguments: str) -> str:
    done = subprocess.run([need("promtool"), *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def rules_of(name: str) -> list[dict[str, Any]]:
    groups = yaml.safe_load((CONFIG / "rules" / name).read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def alerts() -> list[dict[str, Any]]:
    return [rule for name in ("alerts.yml", "absent.yml") for rule in rules_of(name) if "alert" in rule]


def test_the_configuration_is_valid_and_absence_is_not_alerted_on_by_default():
    promtool("check", "config", str(CONFIG / "prometheus.yml"))
    promtool("check", "rules", str(CONFIG / "rules" / "absent.yml"))
    assert yaml.safe_load((CONFIG / "prometheus.yml").read_text())["rule_files"] == [
        "rules/recording.yml",
        "rules/alerts.yml",
    ]


@pytest.mark.e2e  # half a minute, which one version of Python is enough for
@pytest.mark.parametrize("path", UNIT_TESTS, ids=lambda path: path.stem)
def test_rules_do_what_they_say(path: Path):
    assert "SUCCESS" in promtool("test", "rules", str(path))


def test_every_alert_is_tested_both_ways():
    """In one file it is expected to fire, and in one it is expected not to."""
    fires: set[str] = set()
    silent: set[str] = set()
    for path in UNIT_TESTS:
        for group in yaml.safe_load(path.read_text())["tests"]:
            for check in group.get("promql_expr_test", []):
                tested = {name for name in ALERTS if f'alertname="{name}"' in check["expr"]}
                (fires if check["exp_samples"] else silent).update(tested)
    assert sorted({rule["alert"] for rule in alerts()}) == ALERTS
    assert sorted(fires) == ALERTS
    assert sorted(silent) == ALERTS


def test_every_recorded_series_is_tested():
    text = "".join(path.read_text() for path in [*UNIT_TESTS, CONFIG / "rules" / "alerts.yml"])
    rules = rules_of("recording.yml") + rules_of("alerts.yml")
    recorded = {rule["record"] for rule in rules if "record" in rule}
    assert {name for name in recorded if name not in text} == {
        # Read by others of these, which are tested.
        "loopeval:run_iterations_bucket:increase5m",
        "loopeval:runs:increase5m",
        "loopeval:iterations:increase5m",
        "loopeval:iterations_wasted:increase5m",
        "loopeval:wasted_tokens:increase5m",
        "loopeval:cost_usd:increase5m",
        "loopeval:wasted_cost_usd:increase5m",
        "loopeval:runs_started:increase5m",
    }


@pytest.mark.parametrize("rule", alerts(), ids=lambda rule: f"{rule['alert']}-{rule['labels']['severity']}")
def test_an_alert_says_what_to_do(rule: dict[str, Any]):
    assert rule["labels"]["severity"] in {"page", "ticket"}
    assert {"summary", "description", "runbook", "dashboard"} <= set(rule["annotations"])
    assert "service_name" in rule["expr"] or "ratio1h" in rule["expr"]
    for name, text in rule["annotations"].items():
        assert "trace_id" not in text, name


def test_annotations_can_be_filled_in(tmp_path: Path):
    """For every alert: with all labels and with none, on an expression that is always true."""
    rules: list[dict[str, Any]] = []
    for number, rule in enumerate(alerts()):
        annotations = rule["annotations"]
        rules.append({"alert": f"All{number}", "expr": "probe", "labels": {}, "annotations": annotations})
        rules.append(
            {"alert": f"None{number}", "expr": "sum(probe)", "labels": {}, "annotations": annotations}
        )
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "all", "rules": rules}]}))
    labels = 'service_name="a b",deployment_environment_name="prod",gen_ai_agent_name="the \\"best\\""'
    more = 'loopeval_guard_kind="other",loopeval_reason="on_start"'
    tests = {
        "rule_files": ["rules.yml"],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "external_labels": {"jaeger_url": "http://jaeger", "grafana_url": "http://grafana"},
                "input_series": [{"series": f"probe{{{labels},{more}}}", "values": "0.5x5"}],
                # Nothing is expected, so that promtool prints what there is.
                "alert_rule_test": [{"eval_time": "2m", "alertname": rule["alert"]} for rule in rules],
            }
        ],
    }
    (tmp_path / "tests.yml").write_text(yaml.safe_dump(tests))
    done = subprocess.run(
        [need("promtool"), "test", "rules", str(tmp_path / "tests.yml")],
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.findall(r"Annotations:\{(.*)\}", done.stdout + done.stderr)
    assert len(found) == len(rules) == 2 * 11
    for annotations in found:
        assert "error expanding" not in annotations
        assert "<no value>" not in annotations
        assert 'dashboard="http://grafana/d/loopeval-' in annotations
    links = [link for annotations in found for link in re.findall(r'traces="(.*?)"', annotations)]
    assert len(links) == 2 * 9
    for link in links:
        tags = parse_qs(urlsplit(link).query).get("tags")
        agent = None if tags is None else json.loads(tags[0]).get("gen_ai.agent.name")
        assert agent in {'the "best"', None}
        assert re.fullmatch(
            r"http://jaeger/search\?service=[\w%+.-]*(&tags=[\w%+.-]*)?&start=.*&limit=20", link
        )


def test_no_trace_or_run_id_is_ever_a_label():
    text = "".join(path.read_text() for path in (CONFIG / "rules").glob("*.yml"))
    assert "trace_id" not in text
    assert re.search(r"loopeval_run_id\b", text) is None
