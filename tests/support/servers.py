"""The servers of ``collector-config`` as processes on loopback: from a program's OTLP to a notification.

They run on the very files that an operator copies. What has to differ here (ports, addresses, intervals) is
an environment variable of the Collector's files; Prometheus and Alertmanager know no variables, so those few
values are replaced in a copy, and nothing else is.
"""

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import yaml
from support.backends import MODULES, need
from support.environments import ROOT, clean_environment

CONFIG = ROOT / "collector-config"
COLLECTOR_CONFIG = CONFIG / "otel-collector.yaml"
AGENT_CONFIG = CONFIG / "otel-collector.agent.yaml"
SPANS_ONLY_CONFIG = CONFIG / "otel-collector.spans-only.yaml"
REMOTE_WRITE_CONFIG = CONFIG / "otel-collector.remote-write.yaml"
OTLP_METRICS_CONFIG = CONFIG / "otel-collector.otlp-metrics.yaml"
PROMETHEUS_CONFIG = CONFIG / "prometheus" / "prometheus.yml"
ALERTMANAGER_CONFIG = CONFIG / "alertmanager" / "alertmanager.yml"
WEBHOOK = CONFIG / "alertmanager" / "webhook.py"
JAEGER_CONFIG = MODULES / "jaeger" / "jaeger.yaml"

PATIENCE_S = 60.0
"""How long anything is waited for before a test fails; a healthy machine needs a fraction of it."""

Found = TypeVar("Found")
AServer = TypeVar("AServer", bound="Server")


def free_ports(number: int) -> list[int]:
    """Ports on loopback that nobody listens on."""
    sockets = [socket.socket() for _ in range(number)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def await_that(look: Callable[[], Found | None], what: str, patience_s: float = PATIENCE_S) -> Found:
    """Wait until ``look`` finds something that is true, and return it.

    Args:
        look: Looks once; servers that do not answer yet count as nothing found.
        what: What is waited for, for the error.
        patience_s: When to give up.
    """
    until = time.monotonic() + patience_s
    while True:
        try:
            found = look()
        except (URLError, ConnectionError, TimeoutError):
            found = None
        if found:
            return found
        if time.monotonic() > until:
            raise AssertionError(f"not within {patience_s:g} s: {what}")
        time.sleep(0.1)


def get(url: str, **query: str | float) -> Any:
    """The JSON of an answer."""
    with urlopen(f"{url}?{urlencode(query)}" if query else url, timeout=10) as answer:
        return json.load(answer)


def get_text(url: str, **headers: str) -> str:
    """The text of an answer."""
    with urlopen(Request(url, headers=headers), timeout=10) as answer:
        return answer.read().decode()


class Server:
    """A server's process, started and stopped by hand. A context manager that stops it.

    Args:
        command: The program and its arguments.
        log: Where its output goes.
        ready: A URL that answers with 200 once it is ready.
        variables: Environment variables to add.
    """

    def __init__(
        self, command: Sequence[str], log: Path, ready: str, variables: Mapping[str, str] | None = None
    ) -> None:
        self.log = log
        self._command = list(command)
        self._ready = ready
        self._variables = dict(variables or {})
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, **variables: str) -> None:
        """Start it, with environment variables more, and wait until it is ready."""
        self._variables.update(variables)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                env=clean_environment({**self._variables, "NO_PROXY": "127.0.0.1,localhost"}),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.log.parent,
            )
        await_that(self._is_ready, f"{self._command[0]} ready at {self._ready}")

    def _is_ready(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise AssertionError(f"{self._command[0]} ended:\n{self.log.read_text()[-4000:]}")
        try:
            get_text(self._ready)
        except HTTPError:
            return False
        return True

    def stop(self) -> None:
        """Ask it to end, and wait until it has."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once, as a crash does."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(15)

    def __enter__(self: AServer) -> AServer:  # noqa: PYI019  # Self needs Python 3.11
        return self

    def __exit__(self, *_exc: object) -> None:
        self.stop()


class Collector(Server):
    """A Collector on files of ``collector-config``.

    Args:
        folder: Where its queue and its log go.
        configs: The files, the later ones over the earlier.
        variables: What its files read from the environment; ports have been chosen.
    """

    def __init__(self, folder: Path, *configs: Path, **variables: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.grpc_port, self.http_port, self.metrics_port = free_ports(3)
        self.health_port, self.telemetry_port = free_ports(2)
        self.queue = folder / "queue"
        settings = {
            "COLLECTOR_HOST": "127.0.0.1",
            "OTLP_GRPC_PORT": str(self.grpc_port),
            "OTLP_HTTP_PORT": str(self.http_port),
            "METRICS_PORT": str(self.metrics_port),
            "HEALTH_PORT": str(self.health_port),
            "TELEMETRY_PORT": str(self.telemetry_port),
            "QUEUE_DIRECTORY": str(self.queue),
            "DECISION_WAIT": "1s",
            "RETRY_INTERVAL": "200ms",
            "GOMEMLIMIT": "300MiB",
            **variables,
        }
        command = [need("collector")]
        for config in configs or (COLLECTOR_CONFIG,):
            command += ["--config", str(config)]
        ready = f"http://127.0.0.1:{self.health_port}/"
        super().__init__(command, folder / "collector.log", ready, settings)

    def exporting(self) -> dict[str, str]:
        """Variables that make the SDK of another process export here.

        Metrics go out once a minute and when the process ends. Not more often: an exemplar is part of one
        export only, and Prometheus sees what is there when it scrapes.
        """
        return {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{self.grpc_port}",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
            "OTEL_EXPORTER_OTLP_INSECURE": "true",
            "OTEL_TRACES_EXPORTER": "otlp",
            "OTEL_METRICS_EXPORTER": "otlp",
            "OTEL_LOGS_EXPORTER": "otlp",
            "OTEL_BSP_SCHEDULE_DELAY": "200",
            "NO_PROXY": "127.0.0.1,localhost",
        }

    def metrics(self) -> str:
        """What it shows to Prometheus."""
        accept = "application/openmetrics-text;version=1.0.0"
        return get_text(f"http://127.0.0.1:{self.metrics_port}/metrics", Accept=accept)

    def own_metric(self, name: str) -> float:
        """The sum over the series of one of its own metrics; 0 if there is none."""
        text = get_text(f"http://127.0.0.1:{self.telemetry_port}/metrics")
        return sum(
            float(line.rsplit(" ", 1)[1])
            for line in text.splitlines()
            if line.split("{")[0].split(" ")[0] == name
        )


class Jaeger(Server):
    """Jaeger, in memory."""

    def __init__(self, folder: Path) -> None:
        self.otlp_port, self.query_port, grpc_port = free_ports(3)
        self.url = f"http://127.0.0.1:{self.query_port}"
        ports = {
            "OTLP_PORT": str(self.otlp_port),
            "QUERY_PORT": str(self.query_port),
            "QUERY_GRPC_PORT": str(grpc_port),
        }
        super().__init__(
            [need("jaeger"), "--config", str(JAEGER_CONFIG)],
            folder / "jaeger.log",
            f"{self.url}/api/services",
            ports,
        )

    def stop(self) -> None:
        """End it at once: it has nothing to put in order, and takes ten seconds where it is asked to end."""
        self.kill()

    def search(self, query: str) -> list[Any]:
        """Traces for the query string of a search."""
        return get(f"{self.url}/api/traces?{query}")["data"]

    def trace(self, trace_id: str) -> Any:
        """A trace."""
        return get(f"{self.url}/api/traces/{trace_id}")["data"][0]


class Prometheus(Server):
    """Prometheus on the rules as they are, scraping and evaluating every second.

    Args:
        folder: Where its data goes.
        targets: Addresses for each scrape job.
        alertmanager: Address of Alertmanager.
        urls: What the rules' links begin with, by name.
        port: Where it listens; 0 takes a free port.
    """

    def __init__(
        self,
        folder: Path,
        targets: Mapping[str, Sequence[str]],
        alertmanager: str = "127.0.0.1:9",
        urls: Mapping[str, str] | None = None,
        port: int = 0,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        config = yaml.safe_load(PROMETHEUS_CONFIG.read_text())
        config["global"]["scrape_interval"] = config["global"]["evaluation_interval"] = "1s"
        config["global"]["external_labels"].update(urls or {})
        config["rule_files"] = [str(PROMETHEUS_CONFIG.parent / name) for name in config["rule_files"]]
        for job in config["scrape_configs"]:
            job.pop("file_sd_configs", None)
            job["static_configs"] = [{"targets": list(targets.get(job["job_name"], ()))}]
        config["alerting"]["alertmanagers"][0]["static_configs"][0]["targets"] = [alertmanager]
        path = folder / "prometheus.yml"
        path.write_text(yaml.safe_dump(config))
        self.port = port or free_ports(1)[0]
        self.url = f"http://127.0.0.1:{self.port}"
        super().__init__(
            [
                need("prometheus"),
                f"--config.file={path}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{self.port}",
                "--enable-feature=exemplar-storage",
                "--web.enable-remote-write-receiver",
                "--rules.alert.resend-delay=1s",
            ],
            folder / "prometheus.log",
            f"{self.url}/-/ready",
        )

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Labels and value of each series."""
        result = get(f"{self.url}/api/v1/query", query=expression)["data"]["result"]
        return [(series["metric"], float(series["value"][1])) for series in result]

    def await_rules(self) -> None:
        """Wait until every group of rules has been evaluated on what is there now.

        Groups are evaluated at moments of their own, so what one has seen another may not have.
        """
        moments: dict[str, set[str]] = {}

        def evaluated() -> bool:
            for group in get(f"{self.url}/api/v1/rules")["data"]["groups"]:
                moments.setdefault(group["name"], set()).add(group["lastEvaluation"])
            # The last one before this, one that may have begun before it, and one for what was a moment late.
            return bool(moments) and all(len(each) > 3 for each in moments.values())

        await_that(evaluated, "all rules")

    def alerts(self) -> list[dict[str, Any]]:
        """What fires, with annotations."""
        return get(f"{self.url}/api/v1/alerts")["data"]["alerts"]

    def value(self, expression: str) -> float | None:
        """The value of the only series; None if there is none."""
        result = self.query(expression)
        assert len(result) <= 1, result
        return result[0][1] if result else None


class Alertmanager(Server):
    """Alertmanager on the routes as they are, waiting a tenth as long.

    Args:
        folder: Where its data goes.
        webhook: Address of the receiver.
    """

    def __init__(self, folder: Path, webhook: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        text = ALERTMANAGER_CONFIG.read_text()
        for old, new in (
            ("loopeval-webhook:8080", webhook),
            ("group_wait: 10s", "group_wait: 1s"),
            ("group_interval: 1m", "group_interval: 1s"),
        ):
            assert old in text
            text = text.replace(old, new)
        path = folder / "alertmanager.yml"
        path.write_text(text)
        (self.port,) = free_ports(1)
        super().__init__(
            [
                need("prometheus-alertmanager"),
                f"--config.file={path}",
                f"--storage.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{self.port}",
                "--cluster.listen-address=",
            ],
            folder / "alertmanager.log",
            f"http://127.0.0.1:{self.port}/-/ready",
        )


class Webhook:
    """The example receiver, which prints its notifications. A context manager.

    Args:
        folder: Where its output goes.
        prometheus: URL of Prometheus.
        jaeger: URL of Jaeger.
    """

    def __init__(self, folder: Path, prometheus: str, jaeger: str) -> None:
        self._output = folder / "notifications.jsonl"
        addresses = ["--port", "0", "--prometheus", prometheus, "--jaeger", jaeger]
        command = [sys.executable, str(WEBHOOK), *addresses]
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                command, stdout=output, stderr=subprocess.PIPE, env=clean_environment()
            )
        assert self._process.stderr is not None
        self.address = f"127.0.0.1:{int(self._process.stderr.readline())}"

    def __enter__(self) -> "Webhook":  # noqa: PYI034  # Self needs Python 3.11
        return self

    def __exit__(self, *_exc: object) -> None:
        self._process.terminate()
        self._process.wait(10)
        assert self._process.stderr is not None
        self._process.stderr.close()

    def notifications(self) -> list[dict[str, Any]]:
        """What has been told so far."""
        return [json.loads(line) for line in self._output.read_text().splitlines()]


def python_app(
    app: Path, variables: Mapping[str, str], log: Path, *, instrument: bool = True
) -> subprocess.Popen[bytes]:
    """Start a program in this interpreter's environment, under ``opentelemetry-instrument`` or plainly."""
    command = [sys.executable, str(app)]
    if instrument:
        command.insert(0, str(Path(sys.prefix) / "bin" / "opentelemetry-instrument"))
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            env=clean_environment(variables, first_on_path=Path(sys.prefix) / "bin"),
            cwd=log.parent,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
