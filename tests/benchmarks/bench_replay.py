"""CPU of judging stored spans, beside reading them, and of ``score`` end to end.

    python tests/benchmarks/bench_replay.py [--spans 40000] [--rounds 15]

The rival is what no reader gets around: parsing the same spans from OTLP/JSON and making an object of each.
``score`` reads a file in which one span of twenty belongs to a loop; its figure is for every span of the
file, with the start of the process, and the one beside it is ``json.loads`` of each line.
"""

import argparse
import gc
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from time import process_time
from typing import Final

from otel_loopeval.otlp import trace_line
from otel_loopeval.otlp.files import read_line_quickly
from otel_loopeval.runs.reconstruct import replay
from otel_loopeval.runs.spans import SpanData
from otel_loopeval.runs.tracker import Tracker

TRACES: Final = 100
SECOND: Final = 1_000_000_000
HTTP: Final = {
    "http.request.method": "GET",
    "url.path": "/things",
    "url.scheme": "https",
    "server.address": "example.org",
    "http.response.status_code": 200,
    "network.protocol.version": "1.1",
    "user_agent.original": "curl/8",
    "client.port": 50_000,
}


def loop_trace(number: int) -> list[SpanData]:
    """A loop under our names: a root, three iterations, a model call in each."""
    start_ns = number * SECOND
    trace_id = number + 1
    root = {
        "gen_ai.agent.name": "writer",
        "loopeval.run.threshold": 8.0,
        "loopeval.run.mode": "optimize",
        "loopeval.run.id": f"{number:016x}",
    }
    spans = [SpanData("evaluation_loop writer", trace_id, 1, None, start_ns, start_ns + SECOND // 10, root)]
    for count in range(1, 4):
        at_ns = start_ns + count * 1_000_000
        told = {"loopeval.iteration.number": count, "loopeval.iteration.score": 5.0 + count}
        spans.append(
            SpanData("evaluation_loop.iteration", trace_id, 10 + count, 1, at_ns, at_ns + 900_000, told)
        )
        spans.append(_model_call(trace_id, 20 + count, 10 + count, at_ns + 1, {}))
    return spans


def agent_trace(number: int) -> list[SpanData]:
    """Somebody else's agent, with content: four turns, each with a tool call."""
    start_ns = number * SECOND
    trace_id = number + 1
    root = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "writer"}
    spans = [SpanData("invoke_agent writer", trace_id, 1, None, start_ns, start_ns + SECOND // 10, root)]
    for count in range(4):
        at_ns = start_ns + (count + 1) * 1_000_000
        call = {"type": "tool_call", "id": f"call_{count}", "name": "search", "arguments": {"q": count}}
        text = {"type": "text", "content": f"Let me look at {count}."}
        said = json.dumps([{"role": "assistant", "parts": [text, call]}])
        spans.append(_model_call(trace_id, 10 + count, 1, at_ns, {"gen_ai.output.messages": said}))
        tool = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "search",
            "gen_ai.tool.call.id": f"call_{count}",
            "gen_ai.tool.call.arguments": json.dumps({"q": count}),
            "gen_ai.tool.call.result": f"result {count}",
        }
        spans.append(
            SpanData("execute_tool search", trace_id, 20 + count, 1, at_ns + 500_000, at_ns + 600_000, tool)
        )
    return spans


def plain_trace(number: int) -> list[SpanData]:
    """A request with what it calls: nothing of a loop or an agent."""
    start_ns = number * SECOND
    return [
        SpanData("GET /things", number + 1, n + 1, n or None, start_ns + n, start_ns + SECOND - n, HTTP)
        for n in range(20)
    ]


def _model_call(trace_id: int, span_id: int, parent_id: int, start_ns: int, more: dict[str, str]) -> SpanData:
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-4o-mini",
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 5,
        "server.address": "api.openai.com",
        **more,
    }
    return SpanData(
        "chat gpt-4o-mini", trace_id, span_id, parent_id, start_ns, start_ns + 400_000, attributes
    )


def microseconds(cases: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """CPU of each function in microseconds, the best of the rounds, in which they take turns."""
    best = dict.fromkeys(cases, float("inf"))
    gc.collect()
    gc.freeze()
    for _ in range(rounds):
        for name, function in cases.items():
            start = process_time()
            function()
            best[name] = min(best[name], (process_time() - start) * 1e6)
    return best


def print_replay(kind: str, make: Callable[[int], list[SpanData]], rounds: int) -> None:
    """One row: judging traces of a kind, beside reading them."""
    traces = [make(number) for number in range(TRACES)]
    lines = [trace_line(trace).encode() for trace in traces]
    spans = sum(map(len, traces))

    def judge() -> None:
        for trace in traces:
            replay(trace, Tracker())

    def read() -> None:
        for line in lines:
            if read_line_quickly(line) is None:
                raise AssertionError("the line was written by us, and cannot be read quickly")

    best = microseconds({"judge": judge, "read": read}, rounds)
    ours, rival = best["judge"] / spans, best["read"] / spans
    print(f"{kind:44} {ours:9.1f} {rival:9.1f} {ours / rival:7.2f}")


def write_file(path: Path, spans: int) -> int:
    """A file of traces, one a line, in which one span of twenty is of a loop; returns how many spans."""
    written = number = 0
    with path.open("w", encoding="utf-8") as stream:
        while written < spans:
            of_a_loop = number % 8 == 0  # 7 spans, and 7 times 20 of others
            trace = loop_trace(number) if of_a_loop else plain_trace(number)
            stream.write(trace_line(trace) + "\n")
            written += len(trace)
            number += 1
    return written


def print_score(spans: int) -> None:
    """``score`` over a file, beside parsing its lines."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "spans.jsonl"
        count = write_file(path, spans)
        before = getrusage(RUSAGE_CHILDREN)
        command = (sys.executable, "-m", "otel_loopeval", "score", str(path), "--format", "json")
        subprocess.run(command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        after = getrusage(RUSAGE_CHILDREN)
        start = process_time()
        with path.open(encoding="utf-8") as stream:
            for line in stream:
                json.loads(line)
        parsing = process_time() - start
    ours = (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / count * 1e6
    rival = parsing / count * 1e6
    print(f"{f'score of {count} spans, 5 % in loops':44} {ours:9.1f} {rival:9.1f} {ours / rival:7.2f}")
    print(f"\nlargest resident memory of score: {after.ru_maxrss / 1024:.0f} MiB")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--spans", type=int, default=40_000, help="spans in the file")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    print(f"Python {sys.version.split()[0]}, CPU time, best of {options.rounds} rounds\n")
    print(f"{'µs a span':44} {'judging':>9} {'reading':>9} {'ratio':>7}")
    print_replay("a loop under our names, all spans of it", loop_trace, options.rounds)
    print_replay("somebody else's agent, with content", agent_trace, options.rounds)
    print_replay("traces without a loop or an agent", plain_trace, options.rounds)
    print_score(options.spans)


if __name__ == "__main__":
    main()
