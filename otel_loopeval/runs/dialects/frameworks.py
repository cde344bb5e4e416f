"""What there is to know of frameworks: which one emitted a span, by its scope, and how they pause a run."""

from typing import Final

from otel_loopeval import semconv

PAUSES: Final = frozenset(
    {
        "langgraph.errors.GraphInterrupt",
        "langgraph.errors.NodeInterrupt",
        "langgraph.types.Interrupt",
        "pydantic_ai.exceptions.ApprovalRequired",
        "pydantic_ai.exceptions.CallDeferred",
    }
)
"""Exceptions by which frameworks wait for a person: a run that one of them ends is paused."""

_BY_WORD: Final = (
    # The first that is in the scope's name; the more specific before the more general.
    ("praisonai", semconv.FRAMEWORK_PRAISONAI),
    ("otel_loopeval", semconv.FRAMEWORK_OWN),
    ("openai_agents", semconv.FRAMEWORK_OPENAI_AGENTS),
    ("openai-agents", semconv.FRAMEWORK_OPENAI_AGENTS),
    ("pydantic", semconv.FRAMEWORK_PYDANTIC_AI),
    ("langchain", semconv.FRAMEWORK_LANGCHAIN),
    ("langgraph", semconv.FRAMEWORK_LANGCHAIN),
    ("crewai", semconv.FRAMEWORK_CREWAI),
    ("google_adk", semconv.FRAMEWORK_GOOGLE_ADK),
    ("gcp.vertex.agent", semconv.FRAMEWORK_GOOGLE_ADK),
    ("agno", semconv.FRAMEWORK_AGNO),
    ("beeai", semconv.FRAMEWORK_BEEAI),
    ("koog", semconv.FRAMEWORK_KOOG),
    ("autogen", semconv.FRAMEWORK_AUTOGEN),
    ("agent_framework", semconv.FRAMEWORK_AGENT_FRAMEWORK),
    ("semantic_kernel", semconv.FRAMEWORK_SEMANTIC_KERNEL),
    ("smolagents", semconv.FRAMEWORK_SMOLAGENTS),
    ("strands", semconv.FRAMEWORK_STRANDS),
    ("llama_index", semconv.FRAMEWORK_LLAMA_INDEX),
    ("llamaindex", semconv.FRAMEWORK_LLAMA_INDEX),
    ("haystack", semconv.FRAMEWORK_HAYSTACK),
    ("dspy", semconv.FRAMEWORK_DSPY),
    ("openai", semconv.FRAMEWORK_CLIENT),
    ("anthropic", semconv.FRAMEWORK_CLIENT),
    ("litellm", semconv.FRAMEWORK_CLIENT),
    ("genai", semconv.FRAMEWORK_CLIENT),
    ("bedrock", semconv.FRAMEWORK_CLIENT),
    ("vertexai", semconv.FRAMEWORK_CLIENT),
    ("mistral", semconv.FRAMEWORK_CLIENT),
    ("cohere", semconv.FRAMEWORK_CLIENT),
    ("groq", semconv.FRAMEWORK_CLIENT),
    ("ollama", semconv.FRAMEWORK_CLIENT),
)
_PREFIXES: Final = ("openinference.", "traceloop.", "langsmith", "langfuse")
_VERCEL_SCOPE: Final = "ai"
_EXACT: Final = {_VERCEL_SCOPE: semconv.FRAMEWORK_VERCEL_AI}

FLAT: Final = frozenset({semconv.FRAMEWORK_LANGCHAIN, semconv.FRAMEWORK_LLAMA_INDEX})
"""Frameworks that call parts of one agent agents too: theirs inside one another are one run.

LangGraph's prebuilt agent has a node ``agent`` that calls the model while the tools are called beside it.
"""

SILENT_ROOTS: Final = frozenset({semconv.FRAMEWORK_OPENAI_AGENTS})
"""Frameworks that end the span of a workflow well even where an exception leaves it."""

LEAF: Final = "leaf"
"""A scope whose spans have no agent inside them and are none: HTTP clients and databases."""
HOST: Final = "host"
"""A scope whose spans tell of no agent when they start, but may have one inside: servers and workers."""
AI: Final = "ai"
"""A scope whose spans tell of agents, models or tools, whatever their attributes."""
PLAIN: Final = "plain"
"""Any other scope: each of its spans has to be looked at."""

_CONTRIB: Final = "opentelemetry.instrumentation."
# Of OpenTelemetry's own instrumentations. Not botocore, which tells of Bedrock's models.
_LEAVES: Final = frozenset(
    {
        "aiohttp_client",
        "aiopg",
        "asyncpg",
        "cassandra",
        "dbapi",
        "elasticsearch",
        "httpx",
        "mysql",
        "mysqlclient",
        "psycopg",
        "psycopg2",
        "pymemcache",
        "pymongo",
        "pymssql",
        "pymysql",
        "redis",
        "requests",
        "sqlalchemy",
        "sqlite3",
        "tortoiseorm",
        "urllib",
        "urllib3",
    }
)
_HOSTS: Final = frozenset(
    {
        "aiohttp_server",
        "asgi",
        "celery",
        "django",
        "falcon",
        "fastapi",
        "flask",
        "grpc",
        "pyramid",
        "starlette",
        "tornado",
        "wsgi",
    }
)

_MAX_CACHED: Final = 1_000
_cache: dict[str, str | None] = {}
NATURES: Final[dict[str, str]] = {}
"""What is known of scopes already, for hot paths: ask this one first, and then :func:`nature_of`."""


def framework_of(scope: str) -> str | None:
    """The framework that a scope belongs to, or None.

    Args:
        scope: Name of an instrumentation scope.

    Returns:
        One of ``semconv.FRAMEWORK_*``.
    """
    try:
        return _cache[scope]
    except KeyError:
        lowered = scope.lower()
        found = _EXACT.get(lowered) or next((name for word, name in _BY_WORD if word in lowered), None)
        if len(_cache) < _MAX_CACHED:
            _cache[scope] = found
        return found


def nature_of(scope: str) -> str:
    """What spans of a scope may tell.

    Args:
        scope: Name of an instrumentation scope.

    Returns:
        :data:`LEAF`, :data:`HOST`, :data:`AI` or :data:`PLAIN`; remembered, since a program has few scopes.
    """
    known = NATURES.get(scope)
    if known is None:
        if framework_of(scope) is not None or scope.startswith(_PREFIXES):
            known = AI
        else:
            library = scope[len(_CONTRIB) :].partition(".")[0] if scope.startswith(_CONTRIB) else ""
            known = LEAF if library in _LEAVES else HOST if library in _HOSTS else PLAIN
        if len(NATURES) < _MAX_CACHED:
            NATURES[scope] = known
    return known


def is_ai(scope: str) -> bool:
    """Whether spans of a scope are known to tell of agents, models or tools, whatever their attributes."""
    return nature_of(scope) is AI
