"""Stored spans per second, from JSON lines and from protobuf, beside what others would write.

    python tests/benchmarks/bench_reading.py [--spans 20000] [--rounds 15]

Spans with 10 attributes (6 texts, 2 integers, a number, a flag) in traces of 20, 100 spans a line or message.
Every reader makes an object or a dict of each span with all of its attributes. Times are CPU times, the best
of the rounds, in which the readers take turns.
"""

import argparse
import base64
import json
import random
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from time import process_time
from typing import Any, cast

from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_loopeval.otlp import trace_line
from otel_loopeval.otlp.files import read_line_quickly, read_line_strictly
from otel_loopeval.otlp.protobuf import read_request
from otel_loopeval.runs.spans import SpanData
from otel_loopeval.sources import open_source

PER_LINE, PER_TRACE = 100, 20
START_NS = 1_767_323_045_123_456_000
Case = tuple[str, Callable[[], int]]


def trace(random_: random.Random) -> list[SpanData]:
    """One trace, each span below an earlier one."""
    trace_id = random_.getrandbits(128)
    ids = [random_.getrandbits(64) | 1 for _ in range(PER_TRACE)]
    spans: list[SpanData] = []
    for index, span_id in enumerate(ids):
        start_ns = START_NS + random_.getrandbits(40)
        attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "openai",
            "gen_ai.request.model": "gpt-4o",
            "gen_ai.response.id": f"chatcmpl-{random_.getrandbits(64):x}",
            "gen_ai.conversation.id": f"{random_.getrandbits(64):x}",
            "server.address": "api.openai.com",
            "gen_ai.usage.input_tokens": random_.randrange(10_000),
            "gen_ai.usage.output_tokens": random_.randrange(1_000),
            "gen_ai.request.temperature": 0.7,
            "stream": True,
        }
        spans.append(
            SpanData(
                name="chat gpt-4o",
                trace_id=trace_id,
                span_id=span_id,
                parent_id=random_.choice(ids[:index]) if index else None,
                start_ns=start_ns,
                end_ns=start_ns + random_.getrandbits(30),
                attributes=attributes,
                scope="opentelemetry.instrumentation.openai",
            )
        )
    return spans


def message(line: str) -> bytes:
    """A line as a protobuf message."""
    document = json.loads(line)
    for resource_spans in document["resourceSpans"]:
        for scope_spans in resource_spans["scopeSpans"]:
            for span in scope_spans["spans"]:
                for key in ("traceId", "spanId", "parentSpanId"):
                    if key in span:
                        span[key] = base64.b64encode(bytes.fromhex(span[key])).decode()
    return json_format.ParseDict(document, ExportTraceServiceRequest()).SerializeToString()


def dicts_of(document: dict[str, Any]) -> Iterable[dict[str, Any]]:
    """What one would write over a JSON library: a dict a span, nothing checked."""
    for resource_spans in document["resourceSpans"]:
        for scope_spans in resource_spans["scopeSpans"]:
            for span in scope_spans["spans"]:
                attributes: dict[str, Any] = {}
                for pair in span.get("attributes", ()):
                    for kind, value in pair["value"].items():
                        attributes[pair["key"]] = int(value) if kind == "intValue" else value
                parent = span.get("parentSpanId")
                yield {
                    "name": span["name"],
                    "trace_id": int(span["traceId"], 16),
                    "span_id": int(span["spanId"], 16),
                    "parent_id": int(parent, 16) if parent else None,
                    "start_ns": int(span["startTimeUnixNano"]),
                    "end_ns": int(span["endTimeUnixNano"]),
                    "attributes": attributes,
                }


def plain_protobuf(data: bytes) -> Iterable[dict[str, Any]]:
    """What one would write over the official library."""
    for resource_spans in ExportTraceServiceRequest.FromString(data).resource_spans:
        for scope_spans in resource_spans.scope_spans:
            for span in scope_spans.spans:
                attributes = {
                    pair.key: getattr(pair.value, cast("str", pair.value.WhichOneof("value")))
                    for pair in span.attributes
                }
                yield {
                    "name": span.name,
                    "trace_id": int.from_bytes(span.trace_id, "big"),
                    "span_id": int.from_bytes(span.span_id, "big"),
                    "parent_id": int.from_bytes(span.parent_span_id, "big") or None,
                    "start_ns": span.start_time_unix_nano,
                    "end_ns": span.end_time_unix_nano,
                    "attributes": attributes,
                }


def count(items: Iterable[Any]) -> int:
    """How many there are; none is kept."""
    return sum(1 for _ in items)


def cases(folder: Path, spans: int) -> list[Case]:
    """The readers, each over the same spans."""
    random_ = random.Random(1)
    lines: list[str] = []
    for _ in range(spans // PER_LINE):
        lines.append(trace_line([span for _ in range(PER_LINE // PER_TRACE) for span in trace(random_)]))
    data = [line.encode() for line in lines]
    messages = [message(line) for line in lines]
    (folder / "spans.jsonl").write_bytes(b"".join(line + b"\n" for line in data))
    (folder / "spans.bin").write_bytes(b"".join(len(one).to_bytes(4, "big") + one for one in messages))

    def from_file(name: str) -> int:
        return count(open_source(str(folder / name)))

    found: list[Case] = [
        ("JSON lines: json + dicts", lambda: sum(count(dicts_of(json.loads(line))) for line in data)),
        ("JSON lines: the strict reader", lambda: sum(len(read_line_strictly(line)) for line in data)),
        ("JSON lines: the quick reader", lambda: sum(len(read_line_quickly(line) or ()) for line in data)),
        ("JSON lines: open_source() on a file", lambda: from_file("spans.jsonl")),
        ("protobuf: upb + dicts", lambda: sum(count(plain_protobuf(one)) for one in messages)),
        ("protobuf: the reader", lambda: sum(len(read_request(one)) for one in messages)),
        ("protobuf: open_source() on a file", lambda: from_file("spans.bin")),
    ]
    try:
        import orjson  # noqa: PLC0415 - a rival, which need not be there  # type: ignore[import]
    except ImportError:
        print("(orjson is not installed)")
    else:
        loads = cast("Callable[[bytes], Any]", orjson.loads)  # type: ignore[reportUnknownMemberType]
        found.insert(
            1, ("JSON lines: orjson + dicts", lambda: sum(count(dicts_of(loads(one))) for one in data))
        )
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--spans", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        readers = cases(Path(folder), options.spans)
        best = dict.fromkeys((name for name, _ in readers), float("inf"))
        for _ in range(options.rounds):
            for name, read in readers:
                begun = process_time()
                found = read()
                best[name] = min(best[name], process_time() - begun)
                assert found == options.spans, f"{name}: {found} spans"
    print(f"{'reader':<40}{'us/span':>10}{'spans/s':>12}")
    for name, seconds in best.items():
        print(f"{name:<40}{seconds / options.spans * 1e6:>10.2f}{options.spans / seconds:>12,.0f}")


if __name__ == "__main__":
    main()
