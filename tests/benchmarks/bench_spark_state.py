"""Bytes that spans take on their way through Spark: in what is shuffled, and in the state of a stream.

python tests/benchmarks/bench_spark_state.py [TRACES]
"""

import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS), str(TESTS.parent)]

import pyarrow as pa  # noqa: E402  # type: ignore[import]
from sources.stored_spans import request  # noqa: E402 - they are beside the benchmarks
from spark.fleet import START_NS, Fleet, exported  # noqa: E402

from otel_loopeval.otlp import trace_line  # noqa: E402
from otel_loopeval.spark.desk import Desk, Patience  # noqa: E402
from otel_loopeval.spark.packing import Pack  # noqa: E402
from otel_loopeval.spark.reading import reader_of  # noqa: E402
from otel_loopeval.spark.tasks import packs_of  # noqa: E402

NOW_MS = START_NS // 1_000_000


def main() -> None:
    """Print the figures."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    bodies = [
        sorted(body, key=lambda span: id(span.resource)) for body in exported(list(Fleet().traces(count)))
    ]
    forms = {
        "protobuf": [request(*body) for body in bodies],
        "JSON": [trace_line(body).encode() for body in bodies],
    }
    for form, values in forms.items():
        batch = pa.RecordBatch.from_arrays([pa.array(values, pa.binary())], names=["value"])
        desk = Desk(Patience(), max_trace_spans=100_000)
        spans = traces = shuffled = 0
        for packed in packs_of(reader_of(["value"]), strict=True)(iter([batch])):
            shuffled += packed.nbytes
            for row in packed.to_pylist():
                pack = Pack(*(row[name] for name in Pack._fields))
                desk.add(pack, NOW_MS)
                spans, traces = spans + pack.spans, traces + 1
        held = len(desk.store())
        list(desk.close(NOW_MS + 20_000))
        print(
            f"{form}: {shuffled / spans:.0f} bytes a span that is shuffled, {held / spans:.0f} a span "
            f"that is waited for, {len(desk.store()) / traces:.0f} a trace that is remembered"
        )


if __name__ == "__main__":
    main()
