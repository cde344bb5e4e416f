"""The web page of ``serve``: the runs in the store, for people."""

from otel_loopeval.server.page.app import page_app
from otel_loopeval.server.page.options import LOOPBACK_HOSTS, PageOptions

__all__ = ["LOOPBACK_HOSTS", "PageOptions", "page_app"]
