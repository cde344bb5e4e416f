"""With tokens, the page shows to each tenant what it would show if there were no others."""

import asyncio
import html
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple
from urllib.parse import quote

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.served_runs import NOW_NS, served, served_all

from otel_loopeval.server.page import PageOptions, page_app
from otel_loopeval.server.served import ServedRun
from otel_loopeval.server.store.queries import RunFilter
from otel_loopeval.server.store.store import Store
from otel_loopeval.testing import TraceBuilder

TENANTS = ("crimson", "azure", "c\N{LATIN SMALL LETTER O WITH DIAERESIS}lour/of <sand>")
TOKENS = {f"secret-{number}": tenant for number, tenant in enumerate(TENANTS)} | {"secret-all": "*"}
TOKEN_OF = {tenant: token for token, tenant in TOKENS.items()}
OPTIONS = PageOptions(tokens=TOKENS)


class Sent(NamedTuple):
    """A run that a tenant's program sends."""

    tenant: str
    trace_id: int
    agent: int
    score: float
    looping: bool
    over: bool
    closed_ns: int


def run_of(sent: Sent) -> ServedRun:
    """The run; whatever is a name or a text in it has its tenant in it."""
    builder = TraceBuilder(sent.trace_id)
    root_id, start_ns = builder.span_id(), builder.clock.now_ns
    for _ in range(2):
        builder.span(
            f"execute_tool {sent.tenant}",
            parent_id=root_id,
            attributes={
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": sent.tenant,
                "gen_ai.tool.call.arguments": f'{{"of": "{sent.tenant}"}}',
                "gen_ai.tool.call.result": sent.tenant,
            },
        )
    guard = builder.guard_event(tool=sent.tenant, rule=sent.tenant, reason=sent.tenant)
    builder.span(
        "evaluation_loop.iteration",
        parent_id=root_id,
        start_ns=start_ns,
        attributes={"loopeval.iteration.number": 1, "loopeval.iteration.score": sent.score},
        events=[guard] if sent.looping else [],
    )
    builder.span(
        "evaluation_loop",
        span_id=root_id,
        start_ns=start_ns,
        duration_s=5,
        attributes={
            "gen_ai.agent.name": f"{sent.tenant}-{sent.agent}",
            "gen_ai.conversation.id": sent.tenant,
            "loopeval.run.mode": "optimize",
            "loopeval.run.framework": sent.tenant,
        },
    )
    (run,) = served_all(builder.spans, closed_ns=sent.closed_ns, service=f"service of {sent.tenant}")
    return replace(run, tenant=sent.tenant, environment=sent.tenant)


def fill(store: Store, sent: Sequence[Sent]) -> None:
    for each in sent:
        run = run_of(each)
        future = store.put_run(run) if each.over else store.put_spans(run.spans, each.tenant)
        future.result(30)


class Visitor:
    """Looks at a store's page with a tenant's token."""

    def __init__(self, store: Store, tenant: str, options: PageOptions = OPTIONS) -> None:
        self._client = httpx.AsyncClient(
            transport=httpx.ASGITransport(page_app(store, options, clock=lambda: NOW_NS)),
            base_url="http://localhost",
            headers={"authorization": f"Bearer {TOKEN_OF[tenant]}"} if tenant else {},
        )

    async def get(self, address: str, tag: str = "") -> tuple[int, dict[str, str], str]:
        answer = await self._client.get(address, headers={"if-none-match": tag})
        return answer.status_code, dict(answer.headers), answer.text

    async def everything(self) -> dict[str, tuple[int, dict[str, str], str]]:
        """All that links, forms and suggestions lead to."""
        found: dict[str, tuple[int, dict[str, str], str]] = {}
        waiting = ["/", "/live", "/nothing"]
        while waiting:
            address = waiting.pop()
            if address in found or address.startswith("/static"):
                continue
            answer = found[address] = await self.get(address)
            links = re.findall(r'(?:href|data-live)="(/[^"]*)"', answer[2])
            waiting += [html.unescape(link).partition("#")[0] for link in links]
            for name in ("agent", "service", "tenant"):
                choices = re.search(rf'<datalist id="{name}s">(.*?)</datalist>', answer[2])
                for value in re.findall(r'value="([^"]*)"', choices[1] if choices else ""):
                    waiting.append(f"/?{name}={quote(html.unescape(value))}")
        return found


def words_of(tenant: str) -> set[str]:
    return {tenant, html.escape(tenant), quote(tenant), quote(tenant, safe="")}


SENT = st.builds(
    Sent,
    st.sampled_from(TENANTS),
    st.integers(1, 3),
    st.integers(1, 2),
    st.sampled_from([2.0, 9.0]),
    st.booleans(),
    st.sampled_from([True, True, True, False]),
    st.sampled_from([NOW_NS, NOW_NS - 1, NOW_NS - 1_000_000_000_000]),
)


@settings(max_examples=15, deadline=None)
@given(st.lists(SENT, max_size=10), st.sampled_from(TENANTS))
def test_a_tenant_sees_what_it_would_see_if_there_were_no_others(sent: list[Sent], tenant: str) -> None:
    async def look(store: Store, alone: Store) -> None:
        visitor, visitor_alone = Visitor(store, tenant), Visitor(alone, tenant)
        seen = await visitor.everything()
        others = {word for other in TENANTS if other != tenant for word in words_of(other)}
        for address, answer in seen.items():
            assert answer == await visitor_alone.get(address), address
            assert [word for word in others if word in f"{address} {answer}"] == []
        own = {run.key for run in store.view(tenant).runs(RunFilter()).runs}
        assert {address for address in seen if address.startswith("/runs/")} == {
            f"/runs/{key}" for key in own
        }
        nowhere = await visitor.get("/runs/nothing")
        assert nowhere[0] == 404
        for run in store.view().runs(RunFilter()).runs:
            if run.tenant != tenant:
                assert await visitor.get(f"/runs/{run.key}") == nowhere
                after = await visitor.get(f"/?older={run.closed_ns}-{run.key}")
                gone = await visitor_alone.get(f"/?older={run.closed_ns}-{run.key}")
                assert after == gone

    with TemporaryDirectory() as folder:
        store = Store(Path(folder, "all.db"), clock=lambda: NOW_NS)
        alone = Store(Path(folder, "alone.db"), clock=lambda: NOW_NS)
        try:
            fill(store, sent)
            fill(alone, [each for each in sent if each.tenant == tenant])
            asyncio.run(look(store, alone))
        finally:
            store.close()
            alone.close()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path / "runs.db", clock=lambda: NOW_NS)
    yield store
    store.close()


def three(store: Store) -> None:
    """A run of each tenant, all in a trace of the same id, and one from when there were no tokens."""
    fill(store, [Sent(tenant, 1, 1, 9.0, looping=False, over=True, closed_ns=NOW_NS) for tenant in TENANTS])
    store.put_run(served([9.0], agent="older", closed_ns=NOW_NS - 1)).result(30)


def agents(text: str) -> list[str]:
    found = re.findall(r'<a id="run-[^"]*" class="agent" href="[^"]*"><bdi>([^<]*)</bdi></a>', text)
    return [html.unescape(agent) for agent in found]


async def test_the_token_of_all_tenants_sees_all_runs_and_whose_they_are(store: Store) -> None:
    three(store)
    visitor = Visitor(store, "*")
    _, _, text = await visitor.get("/")
    assert agents(text) == [f"{TENANTS[2]}-1", "azure-1", "crimson-1", "older"]
    assert re.findall(r'data-label="Tenant"><bdi>([^<]*)</bdi>', text) == [
        html.escape(TENANTS[2]),
        "azure",
        "crimson",
        "",
    ]
    assert '<h1>Runs <span class="whose">of <bdi>all tenants</bdi></span></h1>' in text
    assert '<input id="tenant" name="tenant" value=""' in text
    choices = re.search(r'<datalist id="tenants">(.*)</datalist>', text)
    assert choices is not None
    assert re.findall(r'value="([^"]*)"', choices[1]) == ["azure", "crimson", html.escape(TENANTS[2])]
    _, _, text = await visitor.get("/?tenant=azure")
    assert agents(text) == ["azure-1"]
    assert re.findall(r'<span class="count">([^<]*)</span>', text) == ["1", "0", "0", "1", "0"]
    assert 'href="/?verdict=healthy&amp;tenant=azure"' in text
    address = re.search(r'href="(/runs/[^"]*)"', text)
    assert address is not None
    status, _, text = await visitor.get(address[1])
    assert status == 200
    assert "<dt>Tenant</dt><dd><bdi>azure</bdi></dd>" in text
    assert 'href="/?agent=azure-1&amp;tenant=azure"' in text
    assert "Other runs of this trace" not in text, "the same id of another tenant is another trace"
    assert agents((await visitor.get("/?tenant=nobody"))[2]) == []


async def test_a_tenant_is_told_whose_runs_it_sees_and_may_choose_no_other(store: Store) -> None:
    three(store)
    visitor = Visitor(store, "azure")
    _, _, text = await visitor.get("/")
    assert agents(text) == ["azure-1"]
    assert '<h1>Runs <span class="whose">of <bdi>azure</bdi></span></h1>' in text
    assert 'id="tenant"' not in text
    assert 'data-label="Tenant"' not in text
    assert await visitor.get("/?tenant=crimson") == await visitor.get("/")


async def test_without_tokens_everybody_sees_all(store: Store) -> None:
    visitor = Visitor(store, "", PageOptions())
    store.put_run(served([9.0], agent="older", closed_ns=NOW_NS - 1)).result(30)
    _, _, text = await visitor.get("/")
    assert agents(text) == ["older"]
    assert "enant" not in text
    three(store)
    _, _, text = await visitor.get("/")
    assert agents(text) == [f"{TENANTS[2]}-1", "azure-1", "crimson-1", "older"]
    assert agents((await visitor.get("/?tenant=azure"))[2]) == ["azure-1"]


async def test_pages_of_a_tenant_go_on_where_they_ended_and_tell_of_no_other(store: Store) -> None:
    futures = [
        store.put_run(
            replace(
                served([9.0], trace_id=n, agent=f"{TENANTS[n % 2]}-{n}", closed_ns=NOW_NS - n // 4),
                tenant=TENANTS[n % 2],
            )
        )
        for n in range(240)
    ]
    for future in futures:
        future.result(30)
    visitor = Visitor(store, "azure")
    seen: list[str] = []
    text, address = "", "/"
    while address:
        _, _, text = await visitor.get(address)
        seen += agents(text)
        older = re.search(r'id="older" href="([^"]*)"', text)
        address = html.unescape(older[1]) if older else ""
    assert sorted(seen) == sorted(f"azure-{n}" for n in range(1, 240, 2))
    newer = re.search(r'id="newer" href="([^"]*)"', text)
    assert newer is not None
    assert agents((await visitor.get(html.unescape(newer[1])))[2]) == seen[50:100]


async def test_what_is_live_tells_a_tenant_of_its_own_runs_only(store: Store) -> None:
    three(store)
    visitor, other = Visitor(store, "azure"), Visitor(store, "crimson")
    before, of_other = (await visitor.get("/live"))[1]["etag"], (await other.get("/live"))[1]["etag"]
    assert before != of_other, "or who has one would be shown nothing in the place of the other"
    fill(store, [Sent("crimson", 2, 1, 9.0, looping=False, over=True, closed_ns=NOW_NS)])
    fill(store, [Sent("crimson", 3, 1, 9.0, looping=False, over=False, closed_ns=NOW_NS)])
    assert (await visitor.get("/live"))[1]["etag"] == before
    assert (await other.get("/live"))[1]["etag"] != of_other
    fill(store, [Sent("azure", 2, 1, 9.0, looping=False, over=True, closed_ns=NOW_NS)])
    assert (await visitor.get("/live"))[1]["etag"] != before


async def test_no_answer_is_for_a_cache_that_others_share(store: Store) -> None:
    three(store)
    visitor = Visitor(store, "azure")
    _, headers, _ = await visitor.get("/live")
    for address in ("/", "/live", "/runs/nothing"):
        _, told, _ = await visitor.get(address)
        assert (told["cache-control"], told["vary"]) == ("no-store", "authorization")
    status, told, _ = await visitor.get("/live", tag=headers["etag"])
    assert (status, told["cache-control"], told["vary"]) == (304, "no-store", "authorization")


async def test_why_the_store_fails_is_told_to_who_runs_it(store: Store, tmp_path: Path) -> None:
    for n in range(1, 200):
        fill(store, [Sent("crimson", n, 1, 9.0, looping=False, over=True, closed_ns=NOW_NS)])
    store.close()
    path = tmp_path / "runs.db"
    with path.open("r+b") as stream:
        stream.seek(8192)
        stream.write(b"\xff" * (path.stat().st_size - 8192))
    damaged = Store(path, clock=lambda: NOW_NS)
    status, _, text = await Visitor(damaged, "azure").get("/")
    assert status == 503
    assert "Who runs the server can see why." in text
    assert "malformed" not in text
    assert str(path) not in text
    status, _, text = await Visitor(damaged, "*").get("/")
    assert status == 503
    assert "malformed; move the file away" in text
    damaged.close()
