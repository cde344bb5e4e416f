"""The page as an ASGI application: the list of runs, and each run."""

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from otel_loopeval.reports import words
from otel_loopeval.server.page import formats
from otel_loopeval.server.page.gate import Gate, viewer_of
from otel_loopeval.server.page.listing import WINDOWS, Asked, columns, read_asked, rows, tabs, under_way
from otel_loopeval.server.page.options import PageOptions
from otel_loopeval.server.page.timeline import timeline
from otel_loopeval.server.store.rows import digest_of
from otel_loopeval.server.store.schema import StoreError
from otel_loopeval.server.store.store import Store
from otel_loopeval.server.store.view import View
from otel_loopeval.version import __version__

_FOLDER: Final = Path(__file__).parent
_TYPES: Final = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_log = logging.getLogger(__name__)


def page_app(
    store: Store | None, options: PageOptions | None = None, *, clock: Callable[[], int] = time.time_ns
) -> ASGIApp:
    """The page as an ASGI application; it answers for any path.

    Args:
        store: Where the runs are; None for a page that tells that nothing is kept.
        options: What the page is told.
        clock: The time in nanoseconds since the epoch.
    """
    options = options or PageOptions()
    site = _Site(store, options, clock)
    app = Starlette(
        routes=[
            Route("/", site.list),
            Route("/live", site.live),
            Route("/runs/{key}", site.run),
            Route("/static/{name}", site.static),
        ],
        exception_handlers={
            404: site.not_found,
            HTTPException: site.other_failure,
            StoreError: site.store_failure,
            Exception: site.failure,
        },
    )
    return Gate(app, options)


class _Site:
    """The pages. Methods that read the store are called in threads."""

    def __init__(self, store: Store | None, options: PageOptions, clock: Callable[[], int]) -> None:
        self._store = store
        self._options = options
        self._clock = clock
        self._templates = Environment(
            loader=FileSystemLoader(_FOLDER / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        known: dict[str, Any] = self._templates.globals  # pyright: ignore[reportAssignmentType] - its own only
        known.update(
            duration=formats.duration,
            number=formats.number,
            score_beside=formats.score_beside,
            usd=formats.usd,
            moment=formats.moment,
            machine_moment=formats.machine_moment,
            why=words.why,
            verdict_word=words.verdict,
            version=__version__,
        )
        self._static = {
            path.name: path.read_bytes() for path in (_FOLDER / "static").iterdir() if path.suffix in _TYPES
        }
        # A number of its own for each start of the server, so that its tags are no earlier server's.
        self._started = clock()

    def list(self, request: Request) -> Response:
        """The list of runs."""
        return self._page("list.html", **self._listing(request))

    def live(self, request: Request) -> Response:
        """What changes in the list; nothing where it is the same as the script has."""
        asked = self._asked(request)
        view = self._view(request, asked)
        changes = "" if view is None else f"{view.changes}-{view.open_traces()}"
        # Of its own for each tenant, since who asks may be another one than before.
        whose = "all" if view is None or view.tenant is None else digest_of(view.tenant)
        tag = f'"{self._started:x}-{whose}-{changes}"'
        if request.headers.get("if-none-match") == tag and not asked.window:
            return Response(status_code=304, headers={"etag": tag, "cache-control": "no-store"})
        # The tag is older than what is read after it: at worst the same comes twice.
        return self._page("_runs.html", headers={"etag": tag}, **self._listing(request))

    def run(self, request: Request) -> Response:
        """One run."""
        view = self._view(request)
        found = None if view is None else view.run(request.path_params["key"])
        if view is None or found is None:
            raise HTTPException(404)
        run, detail = found
        tenant = run.tenant if viewer_of(request) is None else ""
        shown = timeline(run, detail)
        record = run.record
        end_ns = shown.started_ns + int((record.duration_s or 0) * 1e9)
        return self._page(
            "run.html",
            run=run,
            record=record,
            detail=detail,
            shown=shown,
            shown_numbers={part.iteration.number for part in shown.parts},
            siblings=view.siblings(run),
            tenant=tenant,
            of_agent=Asked(agent=record.agent, tenant=tenant).query(),
            links=[]
            if record.trace_id is None
            else self._options.trace_links(
                trace_id=record.trace_id,
                span_id=record.span_id or "",
                start_ns=shown.started_ns,
                end_ns=end_ns,
            ),
        )

    def static(self, request: Request) -> Response:
        """The stylesheet, the script and the icon."""
        name = request.path_params["name"]
        if name not in self._static:
            raise HTTPException(404)
        return Response(
            self._static[name],
            media_type=_TYPES[Path(name).suffix],
            headers={"cache-control": "max-age=31536000, immutable"},  # its address has the version
        )

    def not_found(self, _request: Request, _error: Exception) -> Response:
        """No such page."""
        return self._message(404, "Not found", "There is no such page, or the run is no longer kept.")

    def other_failure(self, _request: Request, error: Exception) -> Response:
        """A method that is not allowed, and the like."""
        status = error.status_code if isinstance(error, HTTPException) else 500
        return self._message(status, "This does not work", "The page cannot be asked for in this way.")

    def store_failure(self, request: Request, error: Exception) -> Response:
        """The store fails."""
        return self._message(503, "The store fails", self._why(request, str(error)))

    def failure(self, request: Request, _error: Exception) -> Response:
        """An error of ours; the server that is around this logs it."""
        _log.error("page %s fails", request.url.path)
        return self._message(500, "Something went wrong", "The log of the server tells what it was.")

    def _view(self, request: Request, asked: Asked | None = None) -> View | None:
        """What the request's token shows, and of that what is asked for; None where there is no store."""
        tenant = viewer_of(request)
        if tenant is None and asked is not None:
            tenant = asked.tenant or None
        return None if self._store is None else self._store.view(tenant)

    def _asked(self, request: Request) -> Asked:
        return read_asked(request.query_params, sees_all=viewer_of(request) is None)

    def _why(self, request: Request, trouble: str) -> str:
        """Why the store fails: where its file is, and what is in it, is not for tenants."""
        return trouble if not trouble or viewer_of(request) is None else "Who runs the server can see why."

    def _listing(self, request: Request) -> dict[str, Any]:
        asked = self._asked(request)
        view = self._view(request, asked)
        if view is None or self._store is None:
            return {"store": False, "asked": asked, "whose": ""}
        sees_all = viewer_of(request) is None
        known = set(self._options.tokens.values())
        chosen = asked.filter(self._clock())
        page = view.runs(chosen, asked.cursor)
        tenants = self._store.view().tenants() if sees_all else ()
        return {
            "store": True,
            "asked": asked,
            "at": asked.at,
            "page": page,
            "rows": rows(page),
            "has": columns(page, sees_all=sees_all),
            "tabs": tabs(asked, view.counts(chosen)),
            "choices": view.choices(),
            "windows": WINDOWS,
            "tenants": tenants,
            "filters_tenants": sees_all and bool(known or tenants),
            "whose": (view.tenant or "all tenants") if len(known) > 1 else "",
            "trouble": self._why(request, view.trouble),
            "under_way": under_way(view.open_traces()),
            "endpoint": f"{request.url.scheme}://{request.url.netloc}",
            "needs_token": bool(known),
        }

    def _page(
        self, template: str, status: int = 200, headers: dict[str, str] | None = None, **more: Any
    ) -> Response:
        text = self._templates.get_template(template).render(**more)
        # Half of a surrogate pair may come in JSON, and goes nowhere.
        return Response(
            text.encode("utf-8", "replace"),
            status,
            {"cache-control": "no-store", **(headers or {})},
            "text/html; charset=utf-8",
        )

    def _message(self, status: int, heading: str, text: str) -> Response:
        return self._page("message.html", status, heading=heading, text=text)
