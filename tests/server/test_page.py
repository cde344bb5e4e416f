"""The page as its server sends it: lists, filters, runs, links, headers, tokens; all of it escaped."""

import re
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from support.page_server import assorted
from support.served_runs import NOW_NS, agent_with_repeats, served, served_all

from otel_loopeval.server.page import LOOPBACK_HOSTS, PageOptions, page_app
from otel_loopeval.server.page.listing import under_way
from otel_loopeval.server.store.store import Store
from otel_loopeval.testing import TraceBuilder

NASTY = "<script>alert('x')</script>\"&"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path / "runs.db", clock=lambda: NOW_NS)
    yield store
    store.close()


async def get(
    store: Store | None, path: str, options: PageOptions | None = None, method: str = "GET", **headers: str
) -> httpx.Response:
    app = page_app(store, options, clock=lambda: NOW_NS)
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app, raise_app_exceptions=False), base_url="http://localhost"
    ) as client:
        return await client.request(method, path, headers=headers)


def fill(store: Store, *runs: object) -> None:
    for future in [store.put_run(run) for run in runs]:  # type: ignore[reportArgumentType]
        future.result(30)


def agents(page: httpx.Response) -> list[str]:
    return re.findall(r'<a id="run-[^"]*" class="agent" href="[^"]*"><bdi>([^<]*)</bdi></a>', page.text)


async def test_the_list_shows_each_run_with_its_verdict_in_words(store: Store) -> None:
    fill(store, *assorted(10))
    page = await get(store, "/")
    assert page.status_code == 200
    assert agents(page) == [
        "researcher",
        "writer",
        "a-rather-long-name-of-an-agent",
        "writer",
        "reviewer",
        "writer",
        "writer",
        "planner",
        "writer",
        "writer",
    ]
    assert len(re.findall(r"</svg>healthy</span>", page.text)) == 5
    assert len(re.findall(r"</svg>unhealthy</span>", page.text)) == 4
    assert len(re.findall(r"</svg>no verdict</span>", page.text)) == 1
    assert "did not converge, doom loop (repeated_action)" in page.text
    assert re.findall(r'<span class="count">([^<]*)</span>', page.text) == ["10", "4", "1", "5", "1"]


async def test_filters_narrow_the_list_and_stay_in_its_links(store: Store) -> None:
    fill(store, *assorted(10))
    page = await get(store, "/?verdict=unhealthy&agent=writer&service=shop&time=1h")
    assert agents(page) == ["writer", "writer"]
    assert 'href="/?agent=writer&amp;service=shop&amp;time=1h"' in page.text
    assert (
        'href="/?verdict=unhealthy&amp;agent=writer&amp;service=shop&amp;time=1h" aria-current="page"'
        in page.text
    )
    assert '<input id="agent" name="agent" value="writer"' in page.text
    assert '<option value="1h" selected>Last hour</option>' in page.text
    assert agents(await get(store, "/?verdict=doom_loop")) == ["planner"]


async def test_time_counts_from_now(store: Store) -> None:
    fill(
        store,
        served([9.0], trace_id=1, agent="old", closed_ns=NOW_NS - 901_000_000_000),
        served([9.0], trace_id=2, agent="new", closed_ns=NOW_NS - 899_000_000_000),
    )
    assert agents(await get(store, "/?time=15m")) == ["new"]
    assert agents(await get(store, "/?time=1h")) == ["new", "old"]


@pytest.mark.parametrize(
    "query",
    [
        "verdict=odd",
        "time=odd",
        "older=x",
        "older=1-",
        "newer=-5",
        "older=" + "9" * 60 + "-1",
        "agent=%ED%A0%80",
    ],
)
async def test_a_query_that_makes_no_sense_is_no_error(store: Store, query: str) -> None:
    fill(store, served([9.0]))
    assert (await get(store, f"/?{query}")).status_code == 200


async def test_cursors_beyond_64_bits_are_no_error(store: Store) -> None:
    fill(store, served([9.0]))
    assert (await get(store, "/?older=99999999999999999999-99999999999999999999")).status_code == 200


async def test_pages_link_to_their_neighbours(store: Store) -> None:
    fill(store, *(served([9.0], trace_id=n, agent=f"a{n}", closed_ns=NOW_NS - n) for n in range(1, 121)))
    seen: list[str] = []
    path = "/?verdict=healthy"
    page = await get(store, path)
    while path:
        page = await get(store, path)
        seen += agents(page)
        older = re.search(r'id="older" href="([^"]*)"', page.text)
        path = older[1].replace("&amp;", "&") if older else ""
    assert seen == [f"a{n}" for n in range(1, 121)]
    newer = re.search(r'id="newer" href="([^"]*)"', page.text)
    assert newer is not None
    assert agents(await get(store, newer[1].replace("&amp;", "&"))) == [f"a{n}" for n in range(51, 101)]
    assert 'id="newest" href="/?verdict=healthy"' in page.text
    assert "it does not update itself" in page.text
    assert "it does not update itself" not in (await get(store, "/?verdict=healthy")).text


async def test_the_part_that_changes_is_sent_again_only_after_a_change(store: Store) -> None:
    fill(store, served([9.0], agent="first"))
    app = page_app(store, clock=lambda: NOW_NS)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
        first = await client.get("/live")
        assert agents(first) == ["first"]
        tag = {"if-none-match": first.headers["etag"]}
        assert (await client.get("/live", headers=tag)).status_code == 304
        fill(store, served([9.0], trace_id=2, agent="second", closed_ns=NOW_NS + 1))
        again = await client.get("/live", headers=tag)
        assert agents(again) == ["second", "first"]
        assert "<html" not in again.text


async def test_a_run_is_a_timeline_with_scores_guard_events_and_waste(store: Store) -> None:
    fill(store, served([4.0, 6.5, 9.0, 9.5], doom_loop=True))
    page = await get(store, f"/runs/{1:032x}-{1:016x}")
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page.text))
    assert (
        "Iteration 2 score 6.5 +2.5 1 guard event +1.0 s, took 1.0 s doom loop repeated_action of search "
        ", 5 times" in text
    )
    assert "Iteration 3 score 9 +2.5 threshold met +2.0 s" in text
    assert "Iteration 4 score 9.5 +0.5 wasted +3.0 s" in text
    assert "threshold 8" in text
    assert page.text.count("<polyline") == 1
    assert page.text.count('<rect class="alarm"') == 1
    assert 'href="#iteration-2"' in page.text


async def test_repeated_steps_stand_side_by_side_with_their_results(store: Store) -> None:
    fill(store, agent_with_repeats())
    page = await get(store, f"/runs/{7:032x}-{1:016x}")
    assert '<h3 id="repeat-1">5 \N{MULTIPLICATION SIGN} <code>search</code></h3>' in page.text
    assert re.findall(r"<h4>Call (\d), <a href=\"#iteration-(\d)\">", page.text) == [
        ("1", "2"),
        ("2", "3"),
        ("3", "4"),
        ("5", "6"),
    ]
    assert page.text.count("same result as the first") == 3
    assert "&lt;b&gt;otters&lt;/b&gt;" in page.text
    assert "<b>" not in page.text


async def test_what_was_not_captured_is_not_there_and_said_to_be_missing(store: Store) -> None:
    run = agent_with_repeats(content=False)
    marked = tuple(
        replace(span, attributes={**span.attributes, "loopeval.step.fingerprint": "loopeval:abc"})
        if span.name == "execute_tool search"
        else span
        for span in run.spans
    )
    fill(store, replace(run, spans=marked))
    page = await get(store, f"/runs/{7:032x}-{1:016x}")
    assert "5 \N{MULTIPLICATION SIGN} <code>search</code>" in page.text
    assert "the arguments themselves were not captured" in page.text
    assert page.text.count("result not captured") == 4
    assert "otters" not in page.text
    assert "loopeval:abc" not in page.text


async def test_whatever_spans_say_is_text(store: Store) -> None:
    builder = TraceBuilder(1)
    root_id, start_ns = builder.span_id(), builder.clock.now_ns
    inner = builder.span_id()
    for _ in range(3):
        builder.span(
            f"execute_tool {NASTY}",
            parent_id=inner,
            attributes={
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": NASTY,
                "gen_ai.tool.call.arguments": NASTY,
                "gen_ai.tool.call.result": NASTY,
                "error.type": NASTY,
            },
            error=True,
        )
    guard = builder.guard_event(tool=NASTY, rule=NASTY, reason=NASTY, source="application")
    builder.span(
        "evaluation_loop.iteration",
        parent_id=root_id,
        span_id=inner,
        start_ns=start_ns,
        duration_s=4,
        attributes={"loopeval.iteration.number": 1, "loopeval.iteration.score": 3.0},
        events=[guard],
    )
    builder.span(
        f"evaluation_loop {NASTY}",
        span_id=root_id,
        start_ns=start_ns,
        duration_s=5,
        attributes={
            "gen_ai.agent.name": NASTY,
            "gen_ai.conversation.id": NASTY,
            "loopeval.run.mode": "optimize",
            "loopeval.run.framework": NASTY,
            "loopeval.run.completion_reason": NASTY,
        },
    )
    runs = [replace(run, service=NASTY, environment=NASTY) for run in served_all(builder.spans)]
    fill(store, *runs)
    for path in (
        "/",
        "/live",
        f"/runs/{1:032x}-{1:016x}",
        f"/?agent={NASTY}&service={NASTY}",
        f"/runs/{NASTY}",
    ):
        page = await get(store, path)
        assert "<script>alert" not in page.text
        assert 'value=""' not in page.text.replace('<option value="" ', "").replace(
            'name="agent" value=""', ""
        ).replace('name="service" value=""', "")
    run_page = await get(store, f"/runs/{1:032x}-{1:016x}")
    assert run_page.text.count("&lt;script&gt;alert") > 10


async def test_whatever_spans_say_a_page_stays_small(store: Store) -> None:
    much = "x" * 1_000_000
    builder = TraceBuilder(1)
    root_id, start_ns = builder.span_id(), builder.clock.now_ns
    for _ in range(10):
        builder.span(
            f"execute_tool {much}",
            parent_id=root_id,
            attributes={
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": much,
                "gen_ai.tool.call.arguments": much,
                "gen_ai.tool.call.result": much,
                "error.type": much,
            },
            error=True,
        )
    builder.span(
        f"invoke_agent {much}",
        span_id=root_id,
        start_ns=start_ns,
        duration_s=20,
        events=[builder.guard_event(tool=much, rule=much, reason=much)],
        attributes={
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": much,
            "gen_ai.conversation.id": much,
        },
    )
    runs = [replace(run, service=much, environment=much) for run in served_all(builder.spans)]
    fill(store, *runs)
    listed = await get(store, "/")
    assert len(listed.content) < 10_000
    (agent,) = agents(listed)
    assert agent == "x" * 199 + "…"
    assert agents(await get(store, f"/?agent={agent}")) == [agent]
    page = await get(store, f"/runs/{1:032x}-{1:016x}")
    assert page.status_code == 200
    assert 50_000 < len(page.content) < 300_000


async def test_links_to_the_trace_are_filled_in(store: Store) -> None:
    fill(store, served([9.0], trace_id=0xABC))
    options = PageOptions(
        trace_urls=(
            "http://localhost:16686/trace/{trace_id}?uiFind={span_id}",
            "https://user:secret@grafana.example/explore?from={start_ms}&to={end_ms}&q=%7B%22{trace_id}%22%7D",
        )
    )
    page = await get(store, f"/runs/{0xABC:032x}-{1:016x}", options)
    assert f'href="http://localhost:16686/trace/{0xABC:032x}?uiFind={1:016x}"' in page.text
    assert "Open the trace at localhost:16686" in page.text
    assert f"from=1789999940000&amp;to=1789999941000&amp;q=%7B%22{0xABC:032x}%22%7D" in page.text
    assert "Open the trace at grafana.example" in page.text


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("javascript:alert({trace_id})", "an address of traces is http:// or https:// with {trace_id} in it"),
        ("http://localhost/traces", "an address of traces is http:// or https:// with {trace_id} in it"),
        ("http://[::1/{trace_id}", "an address of traces is http:// or https:// with {trace_id} in it"),
        ("http://x/{trace_id}/{tenant}", "knows {trace_id}, {span_id}, {start_ms}, {end_ms}, got {tenant}"),
        ('http://x/explore?left={"q":"{trace_id}"}{}', "got {} in"),
        ("http://x/{trace_id}?left={a}", "other braces are %7B and %7D"),
    ],
)
def test_an_address_of_traces_that_is_none_is_refused(url: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=re.escape(complaint)):
        PageOptions(trace_urls=(url,))


async def test_every_answer_carries_a_strict_policy(store: Store) -> None:
    for path, status in (
        ("/", 200),
        ("/static/page.css", 200),
        ("/nothing", 404),
        ("/static/..%2fapp.py", 404),
    ):
        answer = await get(store, path)
        assert answer.status_code == status
        assert answer.headers["content-security-policy"] == (
            "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
            "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
        )
        assert answer.headers["x-content-type-options"] == "nosniff"


async def test_no_page_has_an_inline_script_or_style(store: Store) -> None:
    fill(store, *assorted(10))
    for path in ("/", f"/runs/{3:032x}-{1:016x}", f"/runs/{10:032x}-{1:016x}"):
        text = (await get(store, path)).text
        assert re.findall(r"<style|style=|\son\w+=|javascript:", text) == []
        assert re.findall(r"<script(?! src=\"/static/page\.js\?v=[\d.]+\" defer></script>)", text) == []
        assert re.findall(r"(?:src|href)=\"(?:https?:)?//", text) == [], "nothing comes from elsewhere"


async def test_methods_other_than_get_are_refused(store: Store) -> None:
    assert (await get(store, "/", method="POST")).status_code == 405
    assert (await get(store, "/", method="HEAD")).status_code == 200


async def test_with_tokens_one_is_needed_as_a_password_or_as_a_bearer(store: Store) -> None:
    options = PageOptions(tokens={"s3cret": "*", "pässword": "*"})
    refused = await get(store, "/", options)
    assert (refused.status_code, refused.headers["www-authenticate"]) == (
        401,
        'Basic realm="otel-loopeval", charset="UTF-8"',
    )

    def basic(text: str) -> str:
        return f"Basic {b64encode(text.encode()).decode()}"

    wrong = [
        "Bearer other",
        "Bearer ",
        "Basic !!!",
        basic("s3cret"),
        basic("s3cret:x"),
        "Digest s3cret",
        "s3cret",
    ]
    for authorization in wrong:
        assert (await get(store, "/", options, authorization=authorization)).status_code == 401, authorization
    for authorization in ("Bearer s3cret", basic("anyone:s3cret"), basic(":pässword")):
        assert (await get(store, "/", options, authorization=authorization)).status_code == 200, authorization


@pytest.mark.parametrize(
    ("host", "status"),
    [("localhost:4318", 200), ("127.0.0.1", 200), ("[::1]:4318", 200), ("evil.example", 421), ("", 421)],
)
async def test_on_the_loopback_it_answers_to_the_loopback_s_names(
    store: Store, host: str, status: int
) -> None:
    assert (await get(store, "/", PageOptions(hosts=LOOPBACK_HOSTS), host=host)).status_code == status


async def test_without_a_store_the_page_says_so() -> None:
    page = await get(None, "/")
    assert page.status_code == 200
    assert "Nothing is kept here" in page.text
    assert (await get(None, "/runs/x")).status_code == 404
    assert (await get(None, "/live")).status_code == 200


async def test_without_runs_it_says_how_to_send_some_to_its_own_address(
    store: Store,
) -> None:
    page = await get(store, "/")
    text = re.sub(r"<[^>]*>", "", page.text)
    assert "export OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost\n" in text
    assert "export OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf\n" in text
    assert "OTEL_EXPORTER_OTLP_HEADERS" not in text
    elsewhere = await get(store, "/", host="192.0.2.7:14318")
    assert 'OTEL_EXPORTER_OTLP_ENDPOINT=<span id="endpoint">http://192.0.2.7:14318</span>' in elsewhere.text
    secret = await get(store, "/", PageOptions(tokens={"s3cret": "default"}), authorization="Bearer s3cret")
    assert "export OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20<var>token</var>" in secret.text
    assert "s3cret" not in secret.text
    assert "<h1>Runs</h1>" in secret.text, "there is but one tenant"
    of_all = await get(store, "/", PageOptions(tokens={"x": "*", "y": "red"}), authorization="Bearer x")
    assert "authorization=Bearer%20<var>a tenant&#39;s token</var>" in of_all.text


async def test_filters_that_fit_nothing_lead_back_to_all_runs(store: Store) -> None:
    page = await get(store, "/?verdict=healthy&agent=nobody")
    assert "No run fits these filters." in page.text
    assert '<a id="clear-here" href="/">Show all runs</a>' in page.text
    assert "OTEL_EXPORTER" not in page.text


async def test_traces_that_are_not_over_are_counted(store: Store) -> None:
    assert "under way" not in (await get(store, "/")).text
    first = served([9.0, 9.5], trace_id=1)
    store.put_spans(first.spans).result(30)
    assert "1 trace under way: the runs in it show here" in (await get(store, "/")).text
    store.put_spans([*served([9.0], trace_id=2).spans, *served([9.0], trace_id=2**127).spans]).result(30)
    before = await get(store, "/live")
    assert "3 traces under way: the runs in them show here" in before.text
    fill(store, first)
    store.close_trace(1).result(30)
    after = await get(store, "/live")
    assert "2 traces under way" in after.text
    assert after.headers["etag"] != before.headers["etag"]


@pytest.mark.parametrize(("traces", "text"), [(0, ""), (1, "1 trace"), (1_001, "more than 1,000 traces")])
def test_open_traces_in_words(traces: int, text: str) -> None:
    assert under_way(traces) == text


async def test_what_was_wasted_is_told_in_iterations_tokens_and_money(store: Store) -> None:
    run = agent_with_repeats()
    priced = replace(run, verdict=run.verdict._replace(wasted_cost_usd=0.0123))
    fill(store, priced, served([9.0], trace_id=8))
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", (await get(store, f"/runs/{7:032x}-{1:016x}")).text))
    assert "Wasted 4 iterations 5,940 tokens (74 %) $0.0123 " in text
    nothing = re.sub(
        r"\s+", " ", re.sub(r"<[^>]*>", " ", (await get(store, f"/runs/{8:032x}-{1:016x}")).text)
    )
    assert "Wasted nothing " in nothing
    assert "Best score 9 ≥ 8 (threshold)" in nothing


@pytest.mark.parametrize("path", ["/", f"/runs/{9:032x}-{1:016x}"])
async def test_a_best_score_that_is_hardly_below_its_threshold_is_not_shown_as_the_same(
    store: Store, path: str
) -> None:
    fill(store, served([7.5, 7.99996], trace_id=9))
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", (await get(store, path)).text))
    assert " 7.99996 &lt; 8 " in text
    assert path == "/" or " score 7.99996 " in text


async def test_links_lead_only_to_iterations_that_the_page_has(store: Store) -> None:
    fill(store, agent_with_repeats(turns=450))
    page = await get(store, f"/runs/{7:032x}-{1:016x}")
    there = set(re.findall(r'id="iteration-(\d+)"', page.text))
    assert there == {str(number) for number in [*range(1, 101), *range(351, 451)]}
    linked = set(re.findall(r'href="#iteration-(\d+)"', page.text))
    assert linked
    assert linked <= there
    assert "250 iterations are left out here" in page.text


async def test_of_many_guard_events_the_first_show_and_the_others_are_folded(store: Store) -> None:
    builder = TraceBuilder(1)
    events = [builder.guard_event(iteration=1, tool=f"tool-{n}") for n in range(120)]
    builder.run([3.0], events={1: events})
    fill(store, *served_all(builder.spans))
    page = await get(store, f"/runs/{1:032x}-{1:016x}")
    shown, _, rest = page.text.partition('<details class="more"><summary>112 more</summary>')
    assert len(re.findall(r"of <code>tool-\d+</code>", shown)) == 8
    folded = rest.partition("</details>")[0]
    assert len(re.findall(r"of <code>tool-\d+</code>", folded)) == 92
    assert "and 20 that are not shown" in folded


async def test_a_store_that_fails_is_told_of(store: Store, tmp_path: Path) -> None:
    fill(store, *(served([9.0], trace_id=n) for n in range(1, 200)))
    store.close()
    path = tmp_path / "runs.db"
    with path.open("r+b") as stream:
        stream.seek(8192)
        stream.write(b"\xff" * (path.stat().st_size - 8192))
    damaged = Store(path, clock=lambda: NOW_NS)
    page = await get(damaged, "/")
    assert page.status_code == 503
    assert "database disk image is malformed; move the file away, and a new one is made" in page.text
    damaged.close()


async def test_a_run_with_missing_spans_is_marked(store: Store) -> None:
    builder = TraceBuilder(5)
    builder.run([4.0, 9.0])
    (run,) = served_all([span for span in builder.spans if span.parent_id is not None], complete=False)
    fill(store, run)
    listed = await get(store, "/")
    assert "spans missing" in listed.text
    key = re.search(r'href="(/runs/[^"]*)"', listed.text)
    assert key is not None
    page = await get(store, key[1])
    assert "Not all spans of this run could be judged" in page.text
    assert page.text.count('class="title">Iteration') == 2
