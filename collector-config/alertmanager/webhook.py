"""An example of a receiver for Alertmanager's webhooks: a notification with all that one needs to act on it.

    python webhook.py --port 8080 --prometheus http://prometheus:9090 --jaeger http://localhost:16686

Alerts carry labels, and no trace id is ever a label. The metrics behind them carry exemplars, which are
trace ids: this asks Prometheus for those of the alert's series (start it with
``--enable-feature=exemplar-storage``) and adds a link to each trace. A notification is printed as one line of
JSON; send it on from ``notify`` instead.

Standard library only. Listens on loopback unless told otherwise.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterable
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

SERIES = {
    "LoopDoomLoopFired": "loopeval_doom_loop_fired_total",
    "LoopTokenBudgetExceeded": "loopeval_token_budget_exceeded_total",
    "LoopTokenVelocity": "loopeval_tokens_total",
    "LoopIterationsWasted": "loopeval_iterations_wasted_total",
}
"""The counter behind an alert; alerts that are not here are about runs."""
RUNS = "loopeval_runs_total"
SERIES_LABELS = (
    "service_name",
    "deployment_environment_name",
    "gen_ai_agent_name",
    "loopeval_guard_kind",
)
"""Labels that alerts and series share."""
BEFORE = timedelta(minutes=15)
CLOCKS = timedelta(hours=2)
"""How far the clock of a process may be off: exemplars carry its time."""
RFC3339 = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.\d+)?(Z|[+-]\d\d:\d\d)")
MOST_TRACES = 5
TIMEOUT_S = 5.0


def selector(labels: dict[str, str]) -> str:
    """The series behind an alert with these labels."""
    metric = SERIES.get(labels.get("alertname", ""), RUNS)
    matchers = ",".join(
        f"{name}={json.dumps(labels[name], ensure_ascii=False)}" for name in SERIES_LABELS if labels.get(name)
    )
    return f"{metric}{{{matchers}}}"


def newest_traces(found: Iterable[dict[str, Any]]) -> list[str]:
    """Trace ids of an answer of ``/api/v1/query_exemplars``, the newest first, each once."""
    exemplars = [exemplar for series in found for exemplar in series["exemplars"]]
    exemplars.sort(key=lambda exemplar: exemplar["timestamp"], reverse=True)
    ids = (exemplar["labels"].get("trace_id") for exemplar in exemplars)
    return list(dict.fromkeys(trace for trace in ids if trace))[:MOST_TRACES]


def moment(text: str) -> datetime:
    """A time as Alertmanager writes it: RFC 3339, to the nanosecond."""
    match = RFC3339.fullmatch(text)
    if match is None:
        raise ValueError(f"startsAt is no RFC 3339 time: {text!r}")
    seconds, zone = match.groups()
    return datetime.fromisoformat(seconds + ("+00:00" if zone == "Z" else zone))


def traces_of(alert: dict[str, Any], prometheus: str) -> list[str]:
    """Trace ids behind an alert; none if Prometheus cannot say: no notification waits for it for long."""
    started = moment(alert["startsAt"])
    query = {
        "query": selector(alert["labels"]),
        "start": (started - BEFORE - CLOCKS).timestamp(),
        "end": (started + CLOCKS).timestamp(),
    }
    try:
        with urlopen(f"{prometheus}/api/v1/query_exemplars?{urlencode(query)}", timeout=TIMEOUT_S) as answer:
            return newest_traces(json.load(answer)["data"])
    except (OSError, ValueError, KeyError) as error:
        print(f"no exemplars for {alert['labels'].get('alertname')}: {error}", file=sys.stderr)
        return []


def notification(payload: dict[str, Any], prometheus: str, jaeger: str) -> dict[str, Any]:
    """What to tell of one webhook of Alertmanager (payload version 4)."""
    alerts: list[dict[str, Any]] = []
    for alert in payload["alerts"]:
        labels, annotations = alert["labels"], alert["annotations"]
        traces = traces_of(alert, prometheus)
        alerts.append(
            {
                "alert": labels.get("alertname"),
                "status": alert["status"],
                "severity": labels.get("severity"),
                "service": labels.get("service_name"),
                "environment": labels.get("deployment_environment_name"),
                "agent": labels.get("gen_ai_agent_name"),
                "kind": labels.get("loopeval_guard_kind"),
                "summary": annotations.get("summary"),
                "description": annotations.get("description"),
                "runbook": annotations.get("runbook"),
                "dashboard": annotations.get("dashboard"),
                "search": annotations.get("traces"),
                "traces": [f"{jaeger}/trace/{trace}" for trace in traces],
            }
        )
    return {"status": payload["status"], "receiver": payload["receiver"], "alerts": alerts}


def notify(message: dict[str, Any]) -> None:
    """Pass a notification on."""
    print(json.dumps(message, ensure_ascii=False, allow_nan=False), flush=True)


class Server(ThreadingHTTPServer):
    """Takes webhooks.

    Attributes:
        prometheus: Where exemplars are asked for.
        jaeger: Where traces are looked at.
    """

    daemon_threads = True
    prometheus: str
    jaeger: str


class Handler(BaseHTTPRequestHandler):
    """One webhook."""

    server: Server  # pyright: ignore[reportIncompatibleVariableOverride] # only ever made by Server

    def do_POST(self) -> None:
        """Take a notification; 400 (which Alertmanager does not repeat) if it is none."""
        try:
            payload = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)))
            message = notification(payload, self.server.prometheus, self.server.jaeger)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            self.send_error(400, f"not a webhook of Alertmanager: {type(error).__name__}")
            return
        notify(message)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 # the base class's name for it
        """Say nothing: standard output is for notifications."""


def main() -> None:
    """Serve until interrupted; the first line of standard error is the port."""
    parser = argparse.ArgumentParser(description="Prints Alertmanager's notifications, with traces.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--prometheus", default="http://localhost:9090")
    parser.add_argument("--jaeger", default="http://localhost:16686", help="as a reader reaches it")
    options = parser.parse_args()
    server = Server((options.host, options.port), Handler)
    server.prometheus, server.jaeger = options.prometheus.rstrip("/"), options.jaeger.rstrip("/")
    print(server.server_address[1], file=sys.stderr, flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        server.server_close()


if __name__ == "__main__":
    main()
