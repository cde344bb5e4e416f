"""What an operator copies: the compose file, the examples for Kubernetes, Grafana's provisioning.

No containers run here. What is held is that these files fit each other, and the files that the end-to-end
tests start real servers with.
"""

import argparse
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from support import servers
from support.environments import ROOT

from otel_loopeval.cli.serve_arguments import add_arguments
from otel_loopeval.cli.serve_options import serve_options

CONFIG = ROOT / "collector-config"
COMPOSE = CONFIG / "docker-compose.yaml"
DASHBOARDS = CONFIG / "grafana" / "dashboards"
PROVISIONING = CONFIG / "grafana" / "provisioning"


def loaded(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@pytest.fixture
def services() -> dict[str, Any]:
    return loaded(COMPOSE)["services"]


def mounts(service: dict[str, Any]) -> dict[str, Path]:
    """Files and folders of the checkout by where the container finds them."""
    found: dict[str, Path] = {}
    for volume in service.get("volumes", ()):
        source, target, *mode = volume.split(":")
        if source.startswith("."):
            assert mode == ["ro"], volume
            found[target] = (COMPOSE.parent / source).resolve()
    return found


def test_the_servers_of_the_tests_run_on_the_files_that_are_mounted(services: dict[str, Any]) -> None:
    mounted = {path for service in services.values() for path in mounts(service).values()}
    files = {file for path in mounted for file in ([path] if path.is_file() else path.iterdir())}

    assert all(path.exists() for path in mounted)
    rules = {
        servers.PROMETHEUS_CONFIG.parent / name for name in loaded(servers.PROMETHEUS_CONFIG)["rule_files"]
    }
    started_by_tests = {
        servers.COLLECTOR_CONFIG,
        servers.PROMETHEUS_CONFIG,
        servers.ALERTMANAGER_CONFIG,
        servers.WEBHOOK,
        *rules,
    }
    assert started_by_tests <= files
    shipped_disabled = {servers.PROMETHEUS_CONFIG.parent / "rules" / "absent.yml"}
    of_grafana = {*DASHBOARDS.glob("*.json"), *PROVISIONING.glob("*/*.yaml")}
    assert len(of_grafana) == 5
    assert files == started_by_tests | shipped_disabled | of_grafana


def test_ports_are_on_loopback_only(services: dict[str, Any]) -> None:
    published = {port for service in services.values() for port in service.get("ports", ())}

    assert published == {
        f"127.0.0.1:{port}:{port}" for port in (3000, 4317, 4318, 8888, 8889, 9090, 9093, 13133, 16686)
    }


def test_images_are_pinned_and_long_running_services_have_a_health_check(services: dict[str, Any]) -> None:
    assert {name: service["image"] for name, service in services.items()} == {
        "alertmanager": "prom/alertmanager:v0.28.1",
        "grafana": "grafana/grafana:13.2.3",
        "jaeger": "jaegertracing/jaeger:2.13.0",
        "loopeval-webhook": "python:3.13-slim",
        "otel-collector": "otel/opentelemetry-collector-contrib:0.161.0",
        "otel-collector-health": "busybox:1.37.0",
        "otel-collector-queue": "busybox:1.37.0",
        "prometheus": "prom/prometheus:v3.5.0",
    }
    without = {name for name, service in services.items() if "healthcheck" not in service}
    # The Collector's image holds no program that could check it: its neighbour asks.
    assert without == {"otel-collector", "otel-collector-queue"}
    assert "http://otel-collector:13133/" in services["otel-collector-health"]["healthcheck"]["test"]


def test_the_images_are_of_the_versions_that_the_tests_build(services: dict[str, Any]) -> None:
    collector = (servers.MODULES / "collector" / "go.mod").read_text()
    assert "opentelemetry-collector-contrib/exporter/prometheusexporter v0.161.0" in collector
    jaeger = (servers.MODULES / "jaeger" / "go.mod").read_text()
    assert re.search(r"github.com/jaegertracing/jaeger v1\.76\.0\b", jaeger)  # is Jaeger 2.13.0


def test_every_address_in_a_configuration_is_a_service(services: dict[str, Any]) -> None:
    configuration = "\n".join(
        path.read_text()
        for path in (
            servers.COLLECTOR_CONFIG,
            servers.PROMETHEUS_CONFIG,
            servers.ALERTMANAGER_CONFIG,
            PROVISIONING / "datasources" / "loopeval.yaml",
            COMPOSE,
        )
    )
    named = set(re.findall(r"\b([a-z][a-z-]+):(4317|8080|8888|8889|9090|9093|13133|16686)\b", configuration))

    assert named == {
        ("alertmanager", "9093"),
        ("jaeger", "16686"),
        ("jaeger", "4317"),
        ("localhost", "16686"),  # in links for the reader
        ("localhost", "4317"),  # in what the reader types
        ("localhost", "9090"),
        ("localhost", "9093"),
        ("loopeval-webhook", "8080"),
        ("otel-collector", "13133"),
        ("otel-collector", "8888"),
        ("otel-collector", "8889"),
        ("prometheus", "9090"),
    }
    assert {name for name, _ in named} - {"localhost"} <= set(services)


def test_grafana_finds_its_dashboards_and_an_exemplar_its_trace(services: dict[str, Any]) -> None:
    sources = loaded(PROVISIONING / "datasources" / "loopeval.yaml")["datasources"]
    (provider,) = loaded(PROVISIONING / "dashboards" / "loopeval.yaml")["providers"]
    mounted = mounts(services["grafana"])
    home = services["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]

    assert mounted[provider["options"]["path"]] == DASHBOARDS
    assert (DASHBOARDS / Path(home).name).is_file()
    assert [(source["uid"], source["type"]) for source in sources] == [
        ("loopeval-prometheus", "prometheus"),
        ("loopeval-jaeger", "jaeger"),
        ("loopeval-alertmanager", "alertmanager"),
    ]
    (destination,) = sources[0]["jsonData"]["exemplarTraceIdDestinations"]
    assert (destination["name"], destination["datasourceUid"]) == ("trace_id", "loopeval-jaeger")
    scrape_interval = loaded(servers.PROMETHEUS_CONFIG)["global"]["scrape_interval"]
    assert sources[0]["jsonData"]["timeInterval"] == scrape_interval


def test_alerts_link_to_dashboards_that_exist() -> None:
    rules = "\n".join(path.read_text() for path in (CONFIG / "prometheus" / "rules").glob("*.yml"))
    uids = {json.loads(path.read_text())["uid"] for path in DASHBOARDS.glob("*.json")}

    assert uids == {"loopeval-agent", "loopeval-fleet", "loopeval-loop-health"}
    linked = set(re.findall(r"/d/([\w-]+)", rules))
    assert linked
    assert linked <= uids


SERVE = CONFIG / "docker-compose.serve.yaml"


def served(arguments: list[str], folder: Path) -> Any:
    """The options of ``serve``, as the command itself understands and checks them."""
    pytest.importorskip("starlette", reason="the extra [server] is not installed")
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    # Their folder is a volume's.
    return serve_options(parser.parse_args([a.replace("=/data/", f"={folder}/") for a in arguments]))


def test_serve_in_compose_is_in_front_of_the_collector_and_on_loopback(
    services: dict[str, Any], tmp_path: Path
) -> None:
    overlay = loaded(SERVE)
    assert list(overlay["services"]) == ["loopeval-serve", "prometheus"]
    (targets,) = overlay["services"]["prometheus"]["volumes"]
    folder = CONFIG / "prometheus" / "targets"
    assert targets == "./prometheus/targets:/etc/prometheus/targets:ro"
    (job,) = (j for j in loaded(servers.PROMETHEUS_CONFIG)["scrape_configs"] if "file_sd_configs" in j)
    (pattern,) = job["file_sd_configs"][0]["files"]
    (found,) = (CONFIG / "prometheus").glob(pattern)
    assert found.parent == folder
    assert loaded(found) == [{"targets": ["loopeval-serve:4318"]}]
    assert (job["job_name"], job["honor_labels"]) == ("loopeval-serve", True)
    service = overlay["services"]["loopeval-serve"]
    options = served(service["command"], tmp_path)

    assert service["ports"] == ["127.0.0.1:14317:4317", "127.0.0.1:14318:4318"]
    assert [str(options.grpc), str(options.http)] == ["0.0.0.0:4317", "0.0.0.0:4318"]
    assert options.forward == "http://otel-collector:4318"
    assert service["depends_on"].keys() | {"otel-collector"} <= services.keys()
    (volume,) = service["volumes"]
    assert volume == "loopeval-serve:/data"
    assert overlay["volumes"] == {"loopeval-serve": None}
    assert options.store == tmp_path / "runs.db"
    assert f"-t {service['image']} " in SERVE.read_text()
    assert f"-t {service['image']} " in (CONFIG / "README.md").read_text()


def test_serve_as_a_sidecar_listens_where_the_program_sends_and_nowhere_else(tmp_path: Path) -> None:
    pod = loaded(CONFIG / "kubernetes" / "serve-sidecar.yaml")["spec"]["template"]["spec"]
    (sidecar,) = pod["initContainers"]
    (program,) = pod["containers"]
    options = served(sidecar["args"], tmp_path)

    assert sidecar["restartPolicy"] == "Always"
    assert options.http.is_loopback
    assert options.grpc.is_loopback
    assert options.insecure is False
    assert options.store is None
    assert program["env"][0]["value"] == f"http://{options.http}"
    assert "127.0.0.1:4318/readyz" in sidecar["startupProbe"]["exec"]["command"][-1]


def test_serve_in_a_cluster_is_where_the_balancing_collectors_look_for_it(tmp_path: Path) -> None:
    text = (CONFIG / "kubernetes" / "serve.yaml").read_text()
    service, state = yaml.safe_load_all(text)
    pod = state["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    options = served(container["args"], tmp_path)

    name = service["metadata"]["name"]
    assert state["spec"]["serviceName"] == name
    assert service["spec"]["selector"] == state["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["clusterIP"] == "None"
    expected = [
        f"SERVE_{n + 1}={state['metadata']['name']}-{n}.{name}.{service['metadata']['namespace']}.svc:4317"
        for n in range(state["spec"]["replicas"])
    ]
    assert re.findall(r"SERVE_\d=\S+", text) == expected
    fleet = (CONFIG / "otel-collector-serve-fleet.yaml").read_text()
    assert set(re.findall(r"env:(SERVE_\d)", fleet)) == {"SERVE_1", "SERVE_2"}
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"otlp-grpc": options.grpc.port, "otlp-http": options.http.port}
    assert container["volumeMounts"] == [{"name": "data", "mountPath": "/data"}]
    (claim,) = state["spec"]["volumeClaimTemplates"]
    assert claim["metadata"]["name"] == "data"
    # The store and its log fit into the volume.
    assert "--store-max-size=4g" in container["args"]
    assert claim["spec"]["resources"]["requests"]["storage"] == "5Gi"


def test_the_image_of_serve_listens_and_stores_where_it_says(tmp_path: Path) -> None:
    text = (CONFIG / "docker" / "serve.Dockerfile").read_text()
    (command,) = re.findall(r"^CMD (\[.*\])$", text, re.MULTILINE)
    options = served(json.loads(command), tmp_path)

    assert re.search(r"^EXPOSE 4317 4318$", text, re.MULTILINE)
    assert {options.grpc.port, options.http.port} == {4317, 4318}
    assert options.store == tmp_path / "runs.db"
    assert "VOLUME /data" in text


def test_docker_takes_the_compose_file() -> None:
    docker = shutil.which("docker")
    compose = [docker, "compose"] if docker else []
    if not docker or subprocess.run([*compose, "version"], capture_output=True, check=False).returncode:
        pytest.skip("no docker compose on this machine")

    subprocess.run([*compose, "-f", str(COMPOSE), "config", "--quiet"], check=True)
    subprocess.run([*compose, "-f", str(COMPOSE), "-f", str(SERVE), "config", "--quiet"], check=True)


def test_the_operator_puts_the_image_with_the_package_into_annotated_pods() -> None:
    instrumentation = loaded(CONFIG / "kubernetes" / "instrumentation.yaml")
    pod = loaded(CONFIG / "kubernetes" / "deployment.yaml")["spec"]["template"]
    dockerfile = (CONFIG / "docker" / "autoinstrumentation.Dockerfile").read_text()

    assert (instrumentation["apiVersion"], instrumentation["kind"]) == (
        "opentelemetry.io/v1alpha1",
        "Instrumentation",
    )
    here = f"{instrumentation['metadata']['namespace']}/{instrumentation['metadata']['name']}"
    assert pod["metadata"]["annotations"]["instrumentation.opentelemetry.io/inject-python"] == here
    image = instrumentation["spec"]["python"]["image"]
    assert f"docker build -f autoinstrumentation.Dockerfile -t {image} ." in dockerfile
    assert all(isinstance(each["value"], str) for each in instrumentation["spec"]["python"]["env"])
    # The Operator speaks OTLP over HTTP for Python.
    assert instrumentation["spec"]["exporter"]["endpoint"].endswith(":4318")


def test_the_rules_become_a_prometheus_rule_as_the_readme_says() -> None:
    folder = CONFIG / "kubernetes"
    script = re.findall(r"```bash\n(.+?)```", (folder / "README.md").read_text(), re.DOTALL)[0]
    applied = " | kubectl apply -n observability -f -"
    assert script.count(applied) == 1

    written = subprocess.run(
        ["bash", "-euc", script.replace(applied, "")], cwd=folder, capture_output=True, text=True, check=True
    ).stdout

    recording, alerts, _ = yaml.safe_load_all(written)
    for name, rule in (("recording", recording), ("alerts", alerts)):
        assert rule == {
            "apiVersion": "monitoring.coreos.com/v1",
            "kind": "PrometheusRule",
            "metadata": {"name": f"loopeval-{name}"},
            "spec": loaded(CONFIG / "prometheus" / "rules" / f"{name}.yml"),
        }
    enabled = loaded(servers.PROMETHEUS_CONFIG)["rule_files"]
    assert enabled == ["rules/recording.yml", "rules/alerts.yml"]


def test_the_dockerfiles_install_extras_that_exist_and_leave_signals_to_the_program() -> None:
    app = (CONFIG / "docker" / "app.Dockerfile").read_text()
    operator = (CONFIG / "docker" / "autoinstrumentation.Dockerfile").read_text()
    project = (ROOT / "pyproject.toml").read_text()

    server = (CONFIG / "docker" / "serve.Dockerfile").read_text()

    extras = set(re.findall(r"otel-loopeval\[([\w,]+)\]", app + operator + server))
    assert extras == {"auto,praisonai", "auto", "server,cost"}
    assert all(f"\n{extra} = [" in project for extra in ("auto", "praisonai", "server", "cost"))
    assert 'ENTRYPOINT ["otel-loopeval", "serve"]' in server
    assert 'CMD ["opentelemetry-instrument", "python", "app.py"]' in app
