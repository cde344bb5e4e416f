"""The page in a real Chromium: it updates itself, works by keyboard and without script, and is accessible."""

import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.page_server import PageServer, assorted
from support.served_runs import NOW_NS, agent_with_repeats, served

from otel_loopeval.server.page import PageOptions

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
if os.environ.get("CI", "").lower() not in {"1", "true"}:  # where nothing may be left out
    if CHROMIUM is None:
        pytest.skip("there is no Chromium here (Debian: apt-get install chromium)", allow_module_level=True)
    pytest.importorskip("playwright", reason="pip install playwright axe-playwright-python")
    pytest.importorskip("axe_playwright_python", reason="pip install playwright axe-playwright-python")

from axe_playwright_python.sync_playwright import Axe  # noqa: E402 - after what may skip
from playwright.sync_api import Browser, Page, expect, sync_playwright  # noqa: E402 - likewise

DOOM = f"/runs/{3:032x}-{1:016x}"
REPEATS = f"/runs/{20:032x}-{1:016x}"
LONG = f"/runs/{8:032x}-{1:016x}"
SHOTS = os.environ.get("LOOPEVAL_TEST_SHOTS")
"""Folder for pictures of the pages, to look at them."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        # As root, as in containers, Chromium has no sandbox.
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PageServer]:
    options = PageOptions(trace_urls=("http://localhost:16686/trace/{trace_id}",))
    with PageServer(tmp_path, options, [*assorted(10), agent_with_repeats(20)]) as server:
        yield server


class Visit:
    """A page that is open, and what its console said."""

    def __init__(self, browser: Browser, url: str, **options: Any) -> None:
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.said: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.goto(url)

    def __enter__(self) -> "Page":
        return self.page

    def __exit__(self, kind: object, *_error: object) -> None:
        self.context.close()
        if kind is None:
            assert self.said == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("count", [0, 10, 1000])
def test_the_pages_have_no_fault_that_axe_finds(
    browser: Browser, tmp_path: Path, count: int, scheme: Any
) -> None:
    with (
        PageServer(tmp_path, PageOptions(), assorted(count)) as server,
        Visit(browser, server.url, color_scheme=scheme) as page,
    ):
        paths = ["/"] if not count else ["/", "/?verdict=unhealthy", DOOM, LONG, f"/runs/{10:032x}-{1:016x}"]
        for number, path in enumerate(paths):
            page.goto(server.url + path)
            results = Axe().run(page)
            found = [(v["id"], [node["html"] for node in v["nodes"]]) for v in results.response["violations"]]
            assert found == [], path
            if SHOTS is not None:
                page.screenshot(path=Path(SHOTS, f"{count}-{scheme}-{number}.png"), full_page=True)


@pytest.mark.parametrize("width", [320, 768, 1280])
def test_no_page_is_wider_than_its_window(browser: Browser, server: PageServer, width: int) -> None:
    long = "a-very-long-name-" * 30
    server.put(
        [
            served(
                [4.0, 9.0],
                trace_id=301,
                agent=long,
                service=long,
                attributes={"gen_ai.conversation.id": long},
            )
        ]
    )
    server.put(
        [served([None, 9.0], trace_id=302, agent="x" * 500), served([1.0], trace_id=303, agent="وكيل البحث")]
    )
    with Visit(browser, server.url, viewport={"width": width, "height": 800}) as page:
        strange = [f"/runs/{trace_id:032x}-{1:016x}" for trace_id in (301, 302, 303)]
        for path in ("/", "/?agent=nobody", DOOM, LONG, REPEATS, *strange):
            page.goto(server.url + path)
            assert page.evaluate("document.documentElement.scrollWidth") == width, path


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 768, 1280])
def test_who_may_see_all_tenants_can_choose_one_and_others_see_their_own(
    browser: Browser, tmp_path: Path, width: int, scheme: Any
) -> None:
    long = "a-very-long-tenant-" * 5
    runs = [replace(run, tenant=("red", long)[n % 2]) for n, run in enumerate(assorted(10))]
    options = PageOptions(tokens={"secret-1": "red", "secret-2": "*"})
    look: dict[str, Any] = {"viewport": {"width": width, "height": 800}, "color_scheme": scheme}
    with PageServer(tmp_path, options, runs) as server:
        of_all = {"username": "anyone", "password": "secret-2"}
        with Visit(browser, server.url, http_credentials=of_all, **look) as page:
            expect(page.get_by_role("heading", level=1)).to_have_text("Runs of all tenants")
            expect(page.get_by_role("columnheader", name="Tenant")).to_have_count(1)
            check(page, width, f"tenants-all-{width}-{scheme}")
            page.get_by_label("Tenant").fill("red")
            page.get_by_role("button", name="Filter").click()
            expect(page.get_by_role("heading", level=1)).to_have_text("Runs of red")
            expect(page.locator("tbody tr")).to_have_count(5)
            expect(page.get_by_role("status")).to_have_text("Live")
            server.put(
                [replace(served([2.0], trace_id=77, agent="newcomer"), tenant="red", closed_ns=NOW_NS + 1)]
            )
            server.put([replace(served([2.0], trace_id=78, agent="of others"), tenant=long)])
            expect(page.get_by_role("row").nth(1)).to_contain_text("newcomer", timeout=30_000)
            expect(page.locator("tbody tr")).to_have_count(6)
            page.get_by_role("link", name="newcomer").click()
            expect(page.get_by_text("Tenant", exact=True)).to_be_visible()
            check(page, width, f"tenants-run-{width}-{scheme}")
            page.get_by_role("link", name="all runs of this agent").click()
            expect(page.get_by_label("Tenant")).to_have_value("red")
        of_red = {"username": "anyone", "password": "secret-1"}
        with Visit(browser, server.url, http_credentials=of_red, **look) as page:
            expect(page.get_by_role("heading", level=1)).to_have_text("Runs of red")
            expect(page.locator("tbody tr")).to_have_count(6)
            expect(page.get_by_label("Tenant")).to_have_count(0)
            expect(page.get_by_role("columnheader", name="Tenant")).to_have_count(0)
            check(page, width, f"tenants-red-{width}-{scheme}")


def check(page: Page, width: int, name: str) -> None:
    """That it fits its window, and has no fault that axe finds."""
    if SHOTS is not None:
        page.screenshot(path=Path(SHOTS, f"{name}.png"), full_page=True)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    found = Axe().run(page).response["violations"]
    assert [(v["id"], [node["html"] for node in v["nodes"]]) for v in found] == []


def test_a_run_that_ends_shows_by_itself_and_the_focus_stays(browser: Browser, server: PageServer) -> None:
    with Visit(browser, server.url) as page:
        expect(page.get_by_role("status")).to_have_text("Live")
        link = page.get_by_role("link", name="planner")
        link.focus()
        server.put([served([2.0, 3.0], trace_id=77, agent="newcomer", closed_ns=NOW_NS + 1)])
        newcomer = page.get_by_role("row").nth(1)
        expect(newcomer).to_contain_text("newcomer", timeout=30_000)
        expect(newcomer).to_contain_text("unhealthy")
        expect(page.get_by_role("status")).to_have_text("1 new run, 1 unhealthy")
        expect(link).to_be_focused()
        expect(page.get_by_role("link", name="All 12")).to_be_visible()


def test_on_a_narrow_screen_runs_are_cards_and_still_a_table_to_a_screen_reader(
    browser: Browser, server: PageServer
) -> None:
    with Visit(browser, server.url, viewport={"width": 360, "height": 800}) as page:
        row = page.get_by_role("table").get_by_role("row").filter(has_text="planner")
        expect(row.get_by_role("rowheader")).to_contain_text("planner")
        expect(row.get_by_role("cell")).to_have_count(9)
        expect(page.get_by_role("columnheader", name="Best score")).to_have_count(1)
        box = row.bounding_box()
        assert box is not None
        assert box["width"] <= 328, "nothing has to be scrolled sideways"
        expect(row.get_by_text("did not converge, doom loop (repeated_action)")).to_be_visible()
        results = Axe().run(page)
        assert [(v["id"], v["nodes"][0]["html"]) for v in results.response["violations"]] == []


def test_a_row_that_leaves_the_page_leaves_the_focus_to_the_table(
    browser: Browser, server: PageServer
) -> None:
    server.put(
        served([9.0], trace_id=1_000 + n, agent=f"filler-{n}", closed_ns=NOW_NS + n) for n in range(39)
    )
    with Visit(browser, server.url) as page:
        expect(page.get_by_role("status")).to_have_text("Live")
        last = page.get_by_role("row").last.get_by_role("link")
        last.focus()
        leaving = last.get_attribute("id")
        server.put([served([9.0], trace_id=2_000, agent="newcomer", closed_ns=NOW_NS + 99)])
        expect(page.get_by_role("row").nth(1)).to_contain_text("newcomer", timeout=30_000)
        assert page.locator(f"[id='{leaving}']").count() == 0
        expect(page.get_by_role("region", name="Table of runs")).to_be_focused()


def test_what_is_marked_in_the_list_is_not_taken_away(browser: Browser, server: PageServer) -> None:
    with Visit(browser, server.url) as page:
        expect(page.get_by_role("status")).to_have_text("Live")
        page.evaluate("getSelection().selectAllChildren(document.querySelector('td.why'))")
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        server.put([served([2.0], trace_id=77, agent="newcomer", closed_ns=NOW_NS + 1)])
        page.wait_for_timeout(4_500)  # two turns of the page's clock
        assert asked == []
        page.evaluate("getSelection().removeAllRanges()")
        expect(page.get_by_role("row").nth(1)).to_contain_text("newcomer", timeout=30_000)


def test_without_runs_the_page_names_its_own_address_and_the_first_run_takes_its_place(
    browser: Browser, tmp_path: Path
) -> None:
    with PageServer(tmp_path) as server, Visit(browser, server.url) as page:
        expect(page.locator(".empty pre")).to_contain_text(f"OTEL_EXPORTER_OTLP_ENDPOINT={server.url}\n")
        server.put([served([9.0], agent="first")])
        expect(page.get_by_role("link", name="first")).to_be_visible(timeout=30_000)
        expect(page.locator(".empty")).to_have_count(0)


def test_a_link_unfolds_the_iteration_that_it_leads_to(browser: Browser, server: PageServer) -> None:
    server.put([agent_with_repeats(40, turns=30)])  # of so many, those without an event are folded
    with Visit(browser, server.url + f"/runs/{40:032x}-{1:016x}", reduced_motion="reduce") as page:
        steps = page.locator("#iteration-3 .steps")
        expect(steps).to_be_hidden()
        page.get_by_role("link", name="iteration 3", exact=True).click()
        expect(steps).to_be_visible()
        page.goto(server.url + f"/runs/{40:032x}-{1:016x}#iteration-20")
        page.reload()
        expect(page.locator("#iteration-20 .steps")).to_be_visible()


def test_updates_can_be_paused(browser: Browser, server: PageServer) -> None:
    with Visit(browser, server.url) as page:
        page.get_by_role("button", name="Pause updates").click()
        expect(page.get_by_role("status")).to_have_text("Paused")
        server.put([served([2.0], trace_id=77, agent="newcomer", closed_ns=NOW_NS + 1)])
        page.get_by_role("button", name="Resume updates").click()
        expect(page.get_by_role("row").nth(1)).to_contain_text("newcomer", timeout=30_000)


def test_it_works_without_script(browser: Browser, server: PageServer) -> None:
    with Visit(browser, server.url, java_script_enabled=False) as page:
        expect(page.get_by_role("button", name="Pause updates")).to_have_count(0)
        page.get_by_label("Agent").fill("planner")
        page.get_by_role("button", name="Filter").click()
        expect(page.locator("tbody tr")).to_have_count(1)
        page.get_by_role("link", name="planner").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("planner")
        expect(page.locator("svg.curve polyline")).to_have_count(1)
        page.get_by_role("link", name="all runs of this agent").click()
        expect(page.locator("tbody tr")).to_have_count(1)


def test_it_works_by_keyboard(browser: Browser, server: PageServer) -> None:
    with Visit(browser, server.url) as page:
        page.keyboard.press("Tab")
        expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.locator("main")).to_be_focused()
        reached: list[str] = []
        for _ in range(12):
            page.keyboard.press("Tab")
            reached.append(page.evaluate("(document.activeElement.id || document.activeElement.className)"))
        assert reached[:10] == [
            "live-switch",
            "agent",
            "service",
            "time",
            "",  # the button of the form
            "tab-1",
            "tab-2",
            "tab-3",
            "tab-4",
            "tab-5",
        ]
        assert reached[10] == "scroll"
        assert re.fullmatch(r"run-[0-9a-f]{32}-[0-9a-f]{16}", reached[11])
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1)).to_have_text("researcher")


def test_iterations_fold_and_links_lead_to_them(browser: Browser, server: PageServer) -> None:
    with Visit(browser, server.url + REPEATS, reduced_motion="reduce") as page:  # no scrolling under way
        part = page.locator("#iteration-3")
        expect(part).to_contain_text("wasted")
        expect(part.get_by_text('{"query": "<b>otters</b>", "pages": 3}')).to_be_visible()
        part.locator("summary").press("Enter")
        expect(part.get_by_text('{"query": "<b>otters</b>", "pages": 3}')).to_be_hidden()
        page.get_by_role("heading", name="Call 2").get_by_role("link", name="iteration 3").click()
        assert page.url.endswith("#iteration-3")
        expect(part).to_be_in_viewport()
        expect(page.locator(".beside > li")).to_have_count(4)
        tops = {box["y"] for at in range(4) if (box := page.locator(".beside > li").nth(at).bounding_box())}
        assert len(tops) == 1, "they stand side by side"
        assert page.get_by_role("link", name="Open the trace at localhost:16686").get_attribute("href") == (
            f"http://localhost:16686/trace/{20:032x}"
        )


def test_light_and_dark_are_different(browser: Browser, server: PageServer) -> None:
    seen: list[str] = []
    for scheme in ("light", "dark"):
        with Visit(browser, server.url, color_scheme=scheme) as page:
            seen.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert seen == ["rgb(246, 247, 249)", "rgb(16, 21, 28)"]


def test_nothing_is_asked_of_another_host_and_inline_script_does_not_run(
    browser: Browser, server: PageServer
) -> None:
    asked: list[str] = []
    visit = Visit(browser, server.url)
    visit.page.on("request", lambda request: asked.append(request.url))
    visit.page.goto(server.url + REPEATS)
    visit.page.goto(server.url + "/")
    visit.page.evaluate(
        "() => { const s = document.createElement('script'); s.textContent = 'window.ran = 1';"
        " document.body.append(s); }"
    )
    assert visit.page.evaluate("window.ran") is None
    visit.context.close()
    assert len(asked) >= 5
    assert [url for url in asked if not url.startswith(server.url)] == []
    assert len(visit.said) == 1
    assert "Content Security Policy" in visit.said[0]
