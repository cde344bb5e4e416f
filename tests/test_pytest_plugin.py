"""The pytest plugin, in pytest sessions of their own."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest_plugins = ("pytester",)

LOOPS = """
    from otel_loopeval import iteration, loop, record_guard_event

    def run_loop(*scores, agent="writer", doom=False, inner=()):
        with loop(agent, threshold=8.0):
            for score in scores:
                with iteration() as it:
                    it.score = score
                    if doom:
                        record_guard_event({"type": "doom_loop", "tool_name": "search"})
                        doom = False
                    if inner:
                        run_loop(*inner, agent="critic")
                        inner = ()
"""


@pytest.fixture
def session(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project with loops in a module of its own."""
    monkeypatch.setenv("PYTHONPATH", str(pytester.path))
    monkeypatch.setenv("COLUMNS", "200")  # or the summary breaks off
    pytester.syspathinsert()
    pytester.makepyfile(loops=LOOPS)
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function")
    return pytester


def run(session: pytest.Pytester, code: str, *arguments: str, apart: bool = False) -> pytest.RunResult:
    """Run tests in a session of their own; apart, in a process of its own, if they change that for good."""
    session.makepyfile(test_it="import pytest\nfrom loops import run_loop\n\n" + code)
    start = session.runpytest_subprocess if apart else session.runpytest_inprocess
    return start("-q", "-p", "no:cacheprovider", "--strict-markers", *arguments)


def test_a_marked_test_with_healthy_loops_passes(session: pytest.Pytester) -> None:
    result = run(
        session,
        """
@pytest.mark.loop_health
def test_healthy():
    run_loop(5.0, 8.0)
""",
    )
    result.assert_outcomes(passed=1)


def test_a_marked_test_with_an_unhealthy_loop_fails_and_says_why(session: pytest.Pytester) -> None:
    result = run(
        session,
        """
@pytest.mark.loop_health
def test_unhealthy():
    run_loop(8.0, 3.0)
    run_loop(2.0, 4.5, agent="searcher", doom=True, inner=(9.0,))
    run_loop(9.0, agent="fine")
""",
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "loop health: 2 of 3 loops unhealthy",
            "writer: unhealthy: 1 wasted iteration",
            "  Converged in 1 iteration(s). 1 wasted iteration(s) after threshold.",
            "  iteration 1  score 8",
            "  iteration 2  score 3",
            "searcher: unhealthy: did not converge, doom loop (loop_detected)",
            "  Did not converge after 2 iteration(s). Doom-loop guard fired. 1 guard intervention(s).",
            "  iteration 1  score 2",
            "    doom loop: loop_detected of search (application)",
            "  iteration 2  score 4.5",
            "  critic: healthy: converged in 1",
            "    Converged in 1 iteration(s).",
            "    iteration 1  score 9",
        ],
        consecutive=True,
    )


def test_a_run_inside_another_does_not_fail_the_test(session: pytest.Pytester) -> None:
    result = run(
        session,
        """
@pytest.mark.loop_health
def test_inner():
    run_loop(9.0, inner=(1.0,))
""",
    )
    result.assert_outcomes(passed=1)


def test_options_of_the_marker(session: pytest.Pytester) -> None:
    result = run(
        session,
        """
@pytest.mark.loop_health(max_wasted_iterations=1)
def test_waste_allowed():
    run_loop(8.0, 3.0)

@pytest.mark.loop_health(max_wasted_iterations=1)
def test_too_much_waste():
    run_loop(8.0, 3.0, 3.0)

@pytest.mark.loop_health(allow_doom_loops=True)
def test_doom_loop_allowed():
    run_loop(9.0, doom=True)

@pytest.mark.loop_health(allow_doom_loops=True)
def test_doom_loop_allowed_but_did_not_converge():
    run_loop(1.0, doom=True)

@pytest.mark.loop_health(agent="writer")
def test_of_one_agent():
    run_loop(9.0)
    run_loop(1.0, agent="other")

@pytest.mark.loop_health(min_runs=2)
def test_too_few():
    run_loop(9.0)

@pytest.mark.loop_health(min_runs=0)
def test_none_needed():
    pass

@pytest.mark.loop_health
def test_none_ran():
    pass

@pytest.mark.loop_health(check=False)
def test_only_looks(loop_health):
    run_loop(1.0)
    assert [run.passed for run in loop_health.runs] == [False]
""",
        "-rA",
    )
    result.assert_outcomes(passed=5, failed=4)
    result.stdout.fnmatch_lines_random(
        [
            "PASSED *test_waste_allowed",
            "FAILED *test_too_much_waste*",
            "PASSED *test_doom_loop_allowed",
            "FAILED *test_doom_loop_allowed_but_did_not_converge*",
            "PASSED *test_of_one_agent",
            "FAILED *test_too_few - Failed: loop health: expected at least 2 loops, 1 ended with a verdict",
            "PASSED *test_none_needed",
            "FAILED *test_none_ran - Failed: loop health: expected at least 1 loop, none ended",
            "PASSED *test_only_looks",
        ]
    )


def test_markers_of_a_class_and_of_a_test_add_up(session: pytest.Pytester) -> None:
    result = run(
        session,
        """
@pytest.mark.loop_health(max_wasted_iterations=1)
class TestLoops:
    def test_waste_allowed(self):
        run_loop(8.0, 3.0)

    @pytest.mark.loop_health(max_wasted_iterations=0)
    def test_the_closest_wins(self):
        run_loop(8.0, 3.0)

    @pytest.mark.loop_health(allow_doom_loops=True)
    def test_both(self):
        run_loop(8.0, 3.0, doom=True)
""",
    )
    result.assert_outcomes(passed=2, failed=1)


def test_the_fixture_alone_checks_too(session: pytest.Pytester) -> None:
    result = run(
        session,
        """
def test_looks(loop_health):
    run_loop(5.0, 8.0, inner=(9.0,))
    run_loop(9.0)
    assert [(run.agent, run.iterations, run.passed) for run in loop_health.runs] == [
        ("writer", 2, True), ("writer", 1, True)
    ]
    assert [run.agent for run in loop_health.nested_runs] == ["critic"]

def test_fails(loop_health):
    run_loop(5.0)

def test_forgets(loop_health):
    run_loop(5.0)
    loop_health.clear()
    run_loop(8.0)
""",
        "-rA",
    )
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["FAILED *test_fails - Failed: loop health: 1 of 1 loop unhealthy"])


def test_a_test_that_fails_by_itself_keeps_its_own_message(session: pytest.Pytester) -> None:
    result = run(
        session,
        """
@pytest.mark.loop_health
def test_own():
    run_loop(1.0)
    assert 1 == 2

@pytest.mark.loop_health
def test_skips():
    pytest.skip("not today")

@pytest.mark.xfail(strict=True)
@pytest.mark.loop_health
def test_expected():
    run_loop(1.0)
""",
    )
    result.assert_outcomes(failed=1, skipped=1, xfailed=1)
    result.stdout.no_fnmatch_line("*loop health:*")


def test_loops_in_fixtures_threads_coroutines_and_unittest_cases_count(session: pytest.Pytester) -> None:
    result = run(
        session,
        """
import asyncio, threading, unittest

@pytest.fixture
def ran():
    run_loop(1.0)

@pytest.mark.loop_health
def test_in_a_fixture(ran):
    pass

@pytest.mark.loop_health
def test_in_a_thread():
    thread = threading.Thread(target=run_loop, args=(1.0,))
    thread.start()
    thread.join()

@pytest.mark.loop_health
def test_in_a_coroutine():
    async def main():
        run_loop(1.0)
    asyncio.run(main())

@pytest.mark.loop_health
class TestCase(unittest.TestCase):
    def test_in_a_case(self):
        run_loop(1.0)
""",
    )
    result.assert_outcomes(failed=4)


def test_bad_options_are_named(session: pytest.Pytester) -> None:
    result = run(
        session,
        """
@pytest.mark.loop_health(max_waste=1)
def test_unknown():
    run_loop(9.0)

@pytest.mark.loop_health(min_runs="1")
def test_wrong_type():
    run_loop(9.0)

@pytest.mark.loop_health(3)
def test_positional():
    run_loop(9.0)
""",
        "-rA",
    )
    result.assert_outcomes(failed=3)
    result.stdout.fnmatch_lines_random(
        [
            "FAILED *test_unknown - *unexpected keyword argument 'max_waste'*",
            "FAILED *test_wrong_type - *bad option of the loop_health marker: min_runs='1' must be int*",
            "FAILED *test_positional - Failed: loop_health takes no positional arguments*",
        ]
    )


def test_the_apps_own_provider_gets_its_spans_and_a_sampler_hides_no_loop(session: pytest.Pytester) -> None:
    result = run(
        session,
        """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

exporter = InMemorySpanExporter()

@pytest.fixture(scope="module", autouse=True)
def provider():
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return provider

@pytest.mark.loop_health
def test_recorded():
    run_loop(9.0)
    assert [span.name for span in exporter.get_finished_spans()] == [
        "evaluation_loop.iteration", "evaluation_loop writer"
    ]

@pytest.mark.loop_health
def test_a_run_that_only_spans_tell_of():
    tracer = trace.get_tracer("elsewhere")
    with tracer.start_as_current_span("evaluation_loop foreign"):
        with tracer.start_as_current_span("evaluation_loop.iteration") as span:
            span.set_attribute("loopeval.iteration.score", 1.0)

@pytest.mark.loop_health
def test_not_sampled(provider):
    provider.sampler = ALWAYS_OFF
    run_loop(1.0)

def test_afterwards_loops_are_recorded_as_before(provider):
    from opentelemetry.sdk.trace.sampling import ALWAYS_ON
    provider.sampler = ALWAYS_ON
    exporter.clear()
    run_loop(9.0)
    assert [span.name for span in exporter.get_finished_spans()] == [
        "evaluation_loop.iteration", "evaluation_loop writer"
    ]
""",
        "-rA",
        apart=True,
    )
    result.assert_outcomes(passed=2, failed=2)
    result.stdout.fnmatch_lines(
        [
            "FAILED *test_a_run_that_only_spans_tell_of - Failed: loop health: 1 of 1 loop unhealthy",
            "FAILED *test_not_sampled - Failed: loop health: 1 of 1 loop unhealthy",
        ]
    )


def test_what_the_program_instrumented_stays_instrumented(session: pytest.Pytester) -> None:
    result = run(
        session,
        """
from otel_loopeval import instrument, uninstrument
from otel_loopeval.instrumentation import is_instrumented

@pytest.fixture(scope="module")
def instrumented():
    instrument(max_wasted_iterations=5)
    yield
    uninstrument()

def test_without(loop_health):
    run_loop(8.0)
    assert is_instrumented()

def test_is_taken_back():
    assert not is_instrumented()

def test_options_of_the_program_hold(instrumented, loop_health):
    run_loop(8.0, 3.0)

def test_stays(instrumented):
    assert is_instrumented()
""",
    )
    result.assert_outcomes(passed=4)


def test_a_loop_of_praisonai_is_seen_where_nothing_was_instrumented(session: pytest.Pytester) -> None:
    pytest.importorskip("praisonaiagents", reason="needs the extra praisonai")
    result = run(
        session,
        """
class Agent:
    name = "writer"
    def chat(self, prompt):
        return f"answer to {len(prompt)}"

@pytest.mark.loop_health
def test_praisonai(loop_health):
    from praisonaiagents.eval import EvaluationLoop
    scores = iter([3.0, 2.0])
    EvaluationLoop(Agent(), "", metric=lambda output: next(scores), threshold=8.0, max_iterations=2).run("go")
    assert [run.framework for run in loop_health.runs] == ["praisonaiagents"]
""",
        apart=True,
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["loop health: 1 of 1 loop unhealthy", "writer: unhealthy: did not converge"])


def test_a_project_that_does_not_use_it_pays_nothing(tmp_path: Path) -> None:
    (tmp_path / "test_plain.py").write_text(
        "import sys\n"
        "def test_plain():\n"
        "    assert 'otel_loopeval.pytest_plugin' in sys.modules\n"
        "    loaded = {name.split('.')[0] for name in sys.modules}\n"
        "    assert loaded.isdisjoint({'opentelemetry', 'rich', 'wrapt', 'praisonaiagents'}), loaded\n"
        "    ours = {name for name in sys.modules if name.startswith('otel_loopeval')}\n"
        "    assert ours == {'otel_loopeval', 'otel_loopeval.version', 'otel_loopeval.pytest_plugin'}\n"
    )
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:asyncio",
            "-p",
            "no:anyio",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
