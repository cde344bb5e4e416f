"""Whatever is sent to any address of ``serve`` gets an answer that its description knows."""

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import content_type_conformance, status_code_conformance
from server.serve_openapi import DESCRIPTION
from server.serve_processes import Serve, serving

SCHEMA = schemathesis.openapi.from_dict(DESCRIPTION)
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance]
SLOW = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]


def as_it_is(_context: object, value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")


schemathesis.serializer("application/x-protobuf")(as_it_is)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serve]:
    arguments = ("--store", "runs.db", "--grace", "0s", "--max-body", "100k")
    with serving(*arguments, cwd=tmp_path_factory.mktemp("described")) as process:
        yield process
        assert process.process.poll() is None
        assert not [line for line in process.lines if "Traceback" in line or "should not have" in line]


@SCHEMA.include(path="/v1/traces").parametrize()  # type: ignore[reportUntypedFunctionDecorator]  # theirs
@settings(max_examples=60, deadline=None, suppress_health_check=SLOW)
def test_each_answer_to_traces_is_as_described(server: Serve, case: "schemathesis.Case[Any]") -> None:
    case.call_and_validate(f"http://127.0.0.1:{server.port}", checks=CHECKS)


@SCHEMA.exclude(path="/v1/traces").parametrize()  # type: ignore[reportUntypedFunctionDecorator]  # theirs
@settings(max_examples=15, deadline=None, suppress_health_check=SLOW)
def test_each_answer_is_as_described(server: Serve, case: "schemathesis.Case[Any]") -> None:
    headers = {"host": "127.0.0.1"}  # any other name, the page refuses
    case.call_and_validate(f"http://127.0.0.1:{server.port}", checks=CHECKS, headers=headers)


def test_some_of_them_were_good_and_some_were_not(server: Serve) -> None:
    seen = {name for name, count in server.metrics().items() if "serve_requests_total" in name and count}
    for signal, status in (("traces", 200), ("traces", 400)):
        label = f'loopeval_serve_signal="{signal}",loopeval_serve_status="{status}"'
        assert any(label in name for name in seen), (label, seen)
