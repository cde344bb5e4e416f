"""Make ``grafana.schema.json``: a JSON Schema of what Grafana takes for a dashboard, from its own types.

Run by hand when Grafana's version changes (needs npm): ``python tests/grafana/make_grafana_schema.py``. The
types come from the package ``@grafana/schema`` (Apache-2.0), which describes dashboards and the options of
each kind of panel apart; here they are put together, so that a panel is judged by its kind.
"""

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Final, cast

GRAFANA: Final = "13.2.3"
GENERATOR: Final = "2.4.0"
KINDS: Final = ("bargauge", "heatmap", "stat", "table", "timeseries")
"""Kinds of panels that the dashboards use."""

OUTPUT: Final = Path(__file__).with_name("grafana.schema.json")
_TYPES: Final = "node_modules/@grafana/schema/dist/types/raw"

Schema = dict[str, Any]

# What a query looks like is up to its data source; the annotations of Prometheus have these beside it.
_OF_PROMETHEUS: Final[Schema] = {
    "target": {"type": "object"},
    "expr": {"type": "string"},
    "step": {"type": "string"},
    "textFormat": {"type": "string"},
    "titleFormat": {"type": "string"},
}


def main() -> None:
    """Fetch the types, generate a schema of each, put them together."""
    with tempfile.TemporaryDirectory() as folder:
        there = Path(folder)
        packages = [f"@grafana/schema@{GRAFANA}", f"ts-json-schema-generator@{GENERATOR}"]
        _npm(there, "npm", "install", "--no-audit", "--no-fund", "--silent", *packages)
        options = {"strict": True, "module": "esnext", "moduleResolution": "bundler", "types": []}
        (there / "tsconfig.json").write_text(json.dumps({"compilerOptions": options}))
        whole = _generate(there, "dashboard/x/types.gen.d.ts", "Dashboard")
        definitions = whole["definitions"]
        rules: list[Schema] = []
        for kind in KINDS:
            source = f"composable/{kind}/panelcfg/x/types.gen.d.ts"
            rule: Schema = {"options": _added(definitions, _generate(there, source, "Options"), kind)}
            if "interface FieldConfig" in (there / _TYPES / source).read_text():
                custom = _added(definitions, _generate(there, source, "FieldConfig"), kind)
                defaults = {"properties": {"custom": custom}}
                rule["fieldConfig"] = {"properties": {"defaults": defaults}}
            rules.append({"if": {"properties": {"type": {"const": kind}}}, "then": {"properties": rule}})
    definitions["Panel"]["allOf"] = rules
    definitions["Panel"]["properties"]["type"] = {"enum": list(KINDS)}
    definitions["AnnotationQuery"]["properties"].update(_OF_PROMETHEUS)
    # A row is told from a panel by its type.
    definitions["RowPanel"]["properties"]["type"] = {"const": "row"}
    whole["$comment"] = f"Made by {Path(__file__).name} from the types of @grafana/schema {GRAFANA}."
    text = json.dumps(_without_descriptions(whole), sort_keys=True, separators=(",", ":"))
    OUTPUT.write_text(f"{text}\n", encoding="utf-8")


def _npm(folder: Path, *command: str) -> str:
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


def _generate(folder: Path, source: str, name: str) -> Schema:
    command = ["npx", "ts-json-schema-generator", "--tsconfig", "tsconfig.json", "--no-type-check", "--path"]
    return json.loads(_npm(folder, *command, f"{_TYPES}/{source}", "--type", name))


def _added(definitions: Schema, schema: Schema, kind: str) -> Schema:
    """Take in the definitions of a kind of panel under names of their own; the reference to the root."""

    def renamed(value: Any) -> Any:
        if isinstance(value, dict):
            items = cast("dict[str, Any]", value).items()
            return {
                key: item.replace("#/definitions/", f"#/definitions/{kind}.")
                if key == "$ref"
                else renamed(item)
                for key, item in items
            }
        if isinstance(value, list):
            return [renamed(item) for item in cast("list[Any]", value)]
        return value

    for name, definition in schema["definitions"].items():
        definitions[f"{kind}.{name}"] = renamed(definition)
    return {"$ref": schema["$ref"].replace("#/definitions/", f"#/definitions/{kind}.")}


def _without_descriptions(value: Any) -> Any:
    """Only what is checked; a property that is called description is an object and stays."""
    if isinstance(value, dict):
        return {
            key: _without_descriptions(item)
            for key, item in cast("dict[str, Any]", value).items()
            if key != "description" or isinstance(item, dict)
        }
    if isinstance(value, list):
        return [_without_descriptions(item) for item in cast("list[Any]", value)]
    return value


if __name__ == "__main__":
    main()
