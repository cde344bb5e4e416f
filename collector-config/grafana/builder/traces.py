"""Searches for runs in the trace store."""

import json
from collections.abc import Mapping
from typing import Any, Final, Literal

from grafana_foundation_sdk.builders import tempo
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.variants import Dataquery
from grafana_foundation_sdk.models import common as common_model
from grafana_foundation_sdk.models import tempo as tempo_model

Store = Literal["jaeger", "tempo"]

LIMIT: Final = 50
"""Traces that a table shows at most."""


def source(store: Store) -> common_model.DataSourceRef:
    """The data source that the variable of the dashboard names."""
    return common_model.DataSourceRef(type_val=store, uid="${traces}")


class _JaegerSearch(Dataquery):
    """A search in Jaeger; the SDK knows no queries for it."""

    def __init__(self, service: str, tags: str) -> None:
        self._payload: dict[str, Any] = {
            "refId": "A",
            "datasource": source("jaeger"),
            "queryType": "search",
            "service": service,
            "tags": tags,
            "limit": LIMIT,
        }

    def to_json(self) -> dict[str, Any]:
        """What Grafana reads."""
        return self._payload


class _Built(Builder[Dataquery]):
    def __init__(self, query: Dataquery) -> None:
        self._query = query

    def build(self) -> Dataquery:
        return self._query


def search(store: Store, attributes: Mapping[str, str | bool]) -> Builder[Dataquery]:
    """Traces of the dashboard's service that have a span with such attributes."""
    if store == "jaeger":
        # logfmt, with every value as text: Jaeger compares texts.
        tags = " ".join(
            f"{name}={json.dumps(value) if isinstance(value, str) else str(value).lower()}"
            for name, value in attributes.items()
        )
        return _Built(_JaegerSearch("$service", tags))
    conditions = ['resource.service.name =~ "${service:regex}"']
    conditions += [f"span.{name} = {json.dumps(value)}" for name, value in attributes.items()]
    return (
        tempo.Dataquery()
        .ref_id("A")
        .datasource(source("tempo"))
        .query_type("traceql")
        .query("{ " + " && ".join(conditions) + " }")
        .limit(LIMIT)
        .table_type(tempo_model.SearchTableType.TRACES)
    )
