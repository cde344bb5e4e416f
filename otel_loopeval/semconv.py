"""Every name that leaves the process: attributes, events, metrics, enum values.

Nothing else in the package spells such a name. ``loopeval.*`` is ours, since no released convention
covers loops, iterations or guards. ``gen_ai.*`` follows the OpenTelemetry GenAI semantic conventions
(repository ``semantic-conventions-genai``, v0.1.0, all in Development); the Python constants package
marks its own copies as moved, so the strings are kept here together with the version they come from.

A constant documents itself: the string after it is its description in the generated name table.
"""

from typing import Final, NamedTuple


class Metric(NamedTuple):
    """An instrument: its name, unit (UCUM) and description."""

    name: str
    unit: str
    description: str


GENAI_SEMCONV_VERSION: Final = "0.1.0"
"""Version of the GenAI semantic conventions that the ``gen_ai.*`` names come from."""

SCOPE: Final = "otel_loopeval"
"""Instrumentation scope of spans, metrics and logs that ``loop()`` and the processor emit."""

INSTRUMENTATION_SCOPE_PREFIX: Final = "otel_loopeval.instrumentation."
"""Prefix of the scopes of the framework instrumentations."""

# --- Environment -----------------------------------------------------------------------------------

ENV_PREFIX: Final = "LOOPEVAL_"
ENV_FINGERPRINT_KEY: Final = "LOOPEVAL_FINGERPRINT_KEY"
ENV_CAPTURE_CONTENT: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"

# --- Span names ------------------------------------------------------------------------------------

SPAN_EVALUATION_LOOP: Final = "evaluation_loop"
"""Root of an optimize or review run, followed by the agent's name."""
SPAN_GOAL_LOOP: Final = "goal_loop"
"""Root of a goal run, followed by the agent's name."""
SPAN_AGENT_LOOP: Final = "agent_loop"
"""Root of an agent run that we open, followed by the agent's name."""
SPAN_ITERATION: Final = "evaluation_loop.iteration"
"""One iteration of a run."""
SPAN_EVALUATE: Final = "evaluate"
"""A judge at work on an iteration's output."""

SPAN_VERDICT: Final = "loopeval.verdict"
"""What `otel-loopeval serve` found out about a run: a child of the run's root, with the attributes and events that the root of a loop of ours has."""

# --- Attributes of the run's root span, set at its creation ------------------------------------------

GEN_AI_OPERATION_NAME: Final = "gen_ai.operation.name"
"""`invoke_workflow` for optimize and review runs, `invoke_agent` for goal and agent runs."""
GEN_AI_AGENT_NAME: Final = "gen_ai.agent.name"
"""Name of the agent that the loop runs."""
GEN_AI_CONVERSATION_ID: Final = "gen_ai.conversation.id"
"""Conversation that the run belongs to, where it is known."""
RUN_MODE: Final = "loopeval.run.mode"
"""`optimize`, `review`, `goal` or `agent`."""
RUN_FRAMEWORK: Final = "loopeval.run.framework"
"""What runs the loop: `otel_loopeval`, `praisonaiagents`, or the name given to `loop()`."""
RUN_THRESHOLD: Final = "loopeval.run.threshold"
"""Score at which an iteration is good enough, on the judge's own scale."""
RUN_MAX_ITERATIONS: Final = "loopeval.run.max_iterations"
"""Iterations that the loop may run."""
RUN_MAX_WASTED_ITERATIONS: Final = "loopeval.run.max_wasted_iterations"
"""Wasted iterations that the run tolerates, where it brings its own limit."""
RUN_TOKEN_BUDGET: Final = "loopeval.run.token_budget"
"""Input plus output tokens that the run may use, where it brings its own budget."""
RUN_ID: Final = "loopeval.run.id"
"""Identifier of the run, unique across processes."""

# --- Attributes of the run's root span, set at its end ------------------------------------------------

RUN_OUTCOME: Final = "loopeval.run.outcome"
"""How the run ended: `completed`, `limit`, `failed`, `stopped`, `paused`, `cancelled`, `interrupted`, `incomplete`."""
RUN_COMPLETION_REASON: Final = "loopeval.run.completion_reason"
"""The framework's own word for why the loop ended."""
RUN_SUCCESS: Final = "loopeval.run.success"
"""Whether the loop itself calls the run a success (best score at or above the threshold)."""
RUN_ITERATIONS: Final = "loopeval.run.iterations"
"""Iterations that ran."""
RUN_FINAL_SCORE: Final = "loopeval.run.final_score"
"""Score of the last scored iteration."""
RUN_BEST_SCORE: Final = "loopeval.run.best_score"
"""Highest score of the run."""
RUN_BEST_ITERATION: Final = "loopeval.run.best_iteration"
"""Number of the iteration with the highest score, from 1."""
RUN_TOKENS_INPUT: Final = "loopeval.run.tokens.input"
"""Input tokens of the run, its child runs included."""
RUN_TOKENS_OUTPUT: Final = "loopeval.run.tokens.output"
"""Output tokens of the run, its child runs included."""
RUN_STAGE: Final = "loopeval.run.stage"
"""The framework's own word for the stage in which an autonomous run ended (PraisonAI: `direct`, `heuristic`, `planned`, `autonomous`) (PraisonAI)."""
RUN_TURNS_USED: Final = "loopeval.run.turns_used"
"""Turns that the judge of a goal loop has gated, those of the runs that this one resumed included (PraisonAI)."""

HEALTH_PASSED: Final = "loopeval.health.passed"
"""The verdict: converged, no doom loop, waste within bounds."""
HEALTH_CONVERGED: Final = "loopeval.health.converged"
"""Whether the run reached its threshold (goal runs: met the goal; agent runs: completed)."""
HEALTH_DOOM_LOOP_FIRED: Final = "loopeval.health.doom_loop_fired"
"""Whether a guard or detector reported a doom loop in this run or a run inside it."""
HEALTH_ITERATIONS_TO_SUCCESS: Final = "loopeval.health.iterations_to_success"
"""Iteration at which the threshold was first met, else all iterations."""
HEALTH_WASTED_ITERATIONS: Final = "loopeval.health.wasted_iterations"
"""Iterations that ran after the threshold was met (agent runs: turns that only repeated earlier ones)."""
HEALTH_GUARD_INTERVENTIONS: Final = "loopeval.health.guard_interventions"
"""Guard events seen in the run."""
HEALTH_TOTAL_DURATION_S: Final = "loopeval.health.total_duration_s"
"""Wall-clock duration of the run in seconds."""
HEALTH_THRESHOLD: Final = "loopeval.health.threshold"
"""Threshold that the verdict used."""
HEALTH_SCORE_DELTA_PER_ITERATION: Final = "loopeval.health.score_delta_per_iteration"
"""Change of the score from each iteration to the next, the last 128."""
HEALTH_REASONS: Final = "loopeval.health.reasons"
"""Why the run is unhealthy: `not_converged`, `wasted_iterations`, `doom_loop`, `over_token_budget`."""
HEALTH_DOOM_LOOP_KINDS: Final = "loopeval.health.doom_loop_kinds"
"""Kinds of the doom loops that fired."""
HEALTH_REASONING: Final = "loopeval.health.reasoning"
"""The verdict in a sentence, generated from numbers and never from content."""
HEALTH_EVIDENCE: Final = "loopeval.health.evidence"
"""What the detectors could see: `full`, `arguments`, `fingerprint` or `none`."""
HEALTH_OVER_TOKEN_BUDGET: Final = "loopeval.health.over_token_budget"
"""Whether the run used more tokens than its `token_budget`."""
HEALTH_WASTED_TOKENS: Final = "loopeval.health.wasted_tokens"
"""Tokens of the wasted iterations."""
RUN_JUDGE_TOKENS_INPUT: Final = "loopeval.run.judge_tokens.input"
"""Input tokens of the judges of the run, which are not among the run's own."""
RUN_JUDGE_TOKENS_OUTPUT: Final = "loopeval.run.judge_tokens.output"
"""Output tokens of the judges of the run, which are not among the run's own."""
RUN_COST_USD: Final = "loopeval.run.cost_usd"
"""Cost of the run's tokens in USD, its child runs included, its judges not; absent where any of it is unknown."""
RUN_JUDGE_COST_USD: Final = "loopeval.run.judge_cost_usd"
"""Cost of the tokens of the run's judges in USD; absent where any of it is unknown."""
HEALTH_WASTED_COST_USD: Final = "loopeval.health.wasted_cost_usd"
"""Cost of the wasted iterations in USD; absent where any of it is unknown."""
RUN_RESUMED: Final = "loopeval.run.resumed"
"""True where the run goes on from an earlier segment, which a link points to; its numbers are the whole run's."""

# --- Attributes of an iteration span -----------------------------------------------------------------

ITERATION_NUMBER: Final = "loopeval.iteration.number"
"""Number of the iteration, from 1."""
ITERATION_SCORE: Final = "loopeval.iteration.score"
"""Score of the iteration."""
ITERATION_SCORE_DELTA: Final = "loopeval.iteration.score_delta"
"""Change of the score since the iteration before."""
ITERATION_THRESHOLD_MET: Final = "loopeval.iteration.threshold_met"
"""Whether the score is at or above the threshold."""
ITERATION_FINDINGS_COUNT: Final = "loopeval.iteration.findings_count"
"""Number of findings or suggestions that the judge gave."""
ITERATION_TOKENS_INPUT: Final = "loopeval.iteration.tokens.input"
"""Input tokens of the iteration."""
ITERATION_TOKENS_OUTPUT: Final = "loopeval.iteration.tokens.output"
"""Output tokens of the iteration."""
ITERATION_COST_USD: Final = "loopeval.iteration.cost_usd"
"""Cost of the iteration's tokens in USD; absent where any of it is unknown."""
ITERATION_STAGE: Final = "loopeval.iteration.stage"
"""The framework's own word for the stage of an autonomous run that a turn was in (PraisonAI)."""

# --- Attributes of a step (a tool call), on its span ----------------------------------------------------

STEP_FINGERPRINT: Final = "loopeval.step.fingerprint"
"""Keyed hash of what the step did (tool and arguments): equal steps have equal fingerprints, and nothing can be read from them (model and tool calls)."""
STEP_RESULT_FINGERPRINT: Final = "loopeval.step.result_fingerprint"
"""Keyed hash of what the step brought, its result or error (model and tool calls)."""

# --- Errors ---------------------------------------------------------------------------------------------

ERROR_TYPE: Final = "error.type"
"""Qualified class name of the exception that ended the span; `judge_unavailable` or `judge_unreadable` where a judge failed without one, `_OTHER` where a framework does not tell it."""
ERROR_JUDGE_UNAVAILABLE: Final = "judge_unavailable"
ERROR_JUDGE_UNREADABLE: Final = "judge_unreadable"
ERROR_OTHER: Final = "_OTHER"

# --- Guard events -------------------------------------------------------------------------------------

EVENT_GUARD: Final = "loopeval.guard"
"""A guard or detector stepped in; on the innermost open span of the run."""
GUARD_KIND: Final = "loopeval.guard.kind"
"""What was seen: `repeated_action`, `repeated_failure`, `no_progress`, `circular_plan`, `resource_exhaustion`, `repeated_output`, `loop_detected`, `other`."""
GUARD_DOOM_LOOP: Final = "loopeval.guard.doom_loop"
"""Whether the event says that the run is in a doom loop."""
GUARD_SOURCE: Final = "loopeval.guard.source"
"""Who reported: `application`, `detector`, or the framework's guard."""
GUARD_ACTION: Final = "loopeval.guard.action"
"""What the guard did: `observe`, `warn`, `block`, `halt`, `recover`."""
GUARD_TOOL: Final = "loopeval.guard.tool"
"""Tool concerned."""
GUARD_COUNT: Final = "loopeval.guard.count"
"""Repetitions seen."""
GUARD_ITERATION: Final = "loopeval.guard.iteration"
"""Iteration in which the guard stepped in."""
GUARD_RULE: Final = "loopeval.guard.rule"
"""Rule that fired, in the guard's own words for it."""
GUARD_REASON: Final = "loopeval.guard.reason"
"""The guard's explanation. Content: only with content capture."""

# --- GenAI evaluation event ---------------------------------------------------------------------------

EVENT_EVALUATION_RESULT: Final = "gen_ai.evaluation.result"
"""A score, on the span that was evaluated."""
GEN_AI_EVALUATION_NAME: Final = "gen_ai.evaluation.name"
"""`loopeval.score`."""
GEN_AI_EVALUATION_SCORE_VALUE: Final = "gen_ai.evaluation.score.value"
"""The score."""
GEN_AI_EVALUATION_SCORE_LABEL: Final = "gen_ai.evaluation.score.label"
"""`pass` or `fail` against the run's threshold."""
GEN_AI_EVALUATION_EXPLANATION: Final = "gen_ai.evaluation.explanation"
"""The judge's reasoning. Content: only with content capture."""
EVALUATION_NAME: Final = "loopeval.score"
LABEL_PASS: Final = "pass"
LABEL_FAIL: Final = "fail"

# --- GenAI spans of model and tool calls ---------------------------------------------------------------

GEN_AI_REQUEST_TEMPERATURE: Final = "gen_ai.request.temperature"
"""Temperature that was asked for (model and tool calls)."""
GEN_AI_REQUEST_TOP_P: Final = "gen_ai.request.top_p"
"""Nucleus sampling that was asked for (model and tool calls)."""
GEN_AI_REQUEST_MAX_TOKENS: Final = "gen_ai.request.max_tokens"
"""Most tokens that the model may generate (model and tool calls)."""
GEN_AI_RESPONSE_ID: Final = "gen_ai.response.id"
"""The provider's identifier of the answer (model and tool calls)."""
GEN_AI_RESPONSE_FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
"""Why the model stopped, one per choice (model and tool calls)."""
GEN_AI_INPUT_MESSAGES: Final = "gen_ai.input.messages"
"""What the model was told, as JSON. Content: only with content capture (model and tool calls)."""
GEN_AI_OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
"""What the model answered, as JSON. Content: only with content capture (model and tool calls)."""
GEN_AI_TOOL_NAME: Final = "gen_ai.tool.name"
"""Name of the tool (model and tool calls)."""
GEN_AI_TOOL_TYPE: Final = "gen_ai.tool.type"
"""`function` (model and tool calls)."""
GEN_AI_TOOL_CALL_ID: Final = "gen_ai.tool.call.id"
"""The model's identifier of the call (model and tool calls)."""
GEN_AI_TOOL_CALL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
"""Arguments of the call, as JSON. Content: only with content capture (model and tool calls)."""
GEN_AI_TOOL_CALL_RESULT: Final = "gen_ai.tool.call.result"
"""What the tool returned, as JSON. Content: only with content capture (model and tool calls)."""
SERVER_ADDRESS: Final = "server.address"
"""Host of the model's API."""
SERVER_PORT: Final = "server.port"
"""Port of the model's API."""
TOOL_TYPE_FUNCTION: Final = "function"
ERROR_TYPE_OTHER: Final = "_OTHER"
"""`error.type` of a tool that reports an error in its result, where the framework names no kind of it."""

# --- GenAI names that we read from other people's spans -------------------------------------------------

GEN_AI_USAGE_INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
"""Input tokens of one model call (model and tool calls)."""
GEN_AI_USAGE_OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
"""Output tokens of one model call (model and tool calls)."""
GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
"""Input tokens of one model call that were read from a cache, a part of its input tokens (model and tool calls)."""
GEN_AI_USAGE_CACHE_WRITE_INPUT_TOKENS: Final = "gen_ai.usage.cache_write.input_tokens"
"""Input tokens of one model call that were written to a cache, a part of its input tokens (model and tool calls)."""
GEN_AI_USAGE_CACHE_CREATION_INPUT_TOKENS: Final = "gen_ai.usage.cache_creation.input_tokens"
"""An earlier name of `gen_ai.usage.cache_write.input_tokens` (read)."""
GEN_AI_USAGE_REASONING_OUTPUT_TOKENS: Final = "gen_ai.usage.reasoning.output_tokens"
"""Output tokens of one model call that were spent on reasoning, a part of its output tokens (model and tool calls)."""
GEN_AI_REQUEST_MODEL: Final = "gen_ai.request.model"
"""The model that was asked for (model and tool calls)."""
GEN_AI_RESPONSE_MODEL: Final = "gen_ai.response.model"
"""The model that answered (model and tool calls)."""
GEN_AI_PROVIDER_NAME: Final = "gen_ai.provider.name"
"""Who serves the model (model and tool calls)."""
GEN_AI_SYSTEM: Final = "gen_ai.system"
"""An earlier name of `gen_ai.provider.name` (read)."""
GEN_AI_TOKEN_TYPE: Final = "gen_ai.token.type"
"""`input` or `output` (metrics)."""
TOKEN_INPUT: Final = "input"
TOKEN_OUTPUT: Final = "output"

OPERATION_INVOKE_WORKFLOW: Final = "invoke_workflow"
OPERATION_INVOKE_AGENT: Final = "invoke_agent"
OPERATION_EVALUATE: Final = "evaluate"
OPERATION_CHAT: Final = "chat"
OPERATION_EXECUTE_TOOL: Final = "execute_tool"

# --- Read from other people's spans ---------------------------------------------------------------------
# The dialects of :mod:`otel_loopeval.runs.dialects` read these; we emit none of them.

GEN_AI_PREFIX: Final = "gen_ai."
GEN_AI_AGENT_ID: Final = "gen_ai.agent.id"
GEN_AI_PROMPT: Final = "gen_ai.prompt"
GEN_AI_COMPLETION: Final = "gen_ai.completion"
GEN_AI_USAGE_PROMPT_TOKENS: Final = "gen_ai.usage.prompt_tokens"
GEN_AI_USAGE_COMPLETION_TOKENS: Final = "gen_ai.usage.completion_tokens"
GEN_AI_CHOICE: Final = "gen_ai.choice"
GEN_AI_ASSISTANT_MESSAGE: Final = "gen_ai.assistant.message"
GEN_AI_USER_MESSAGE: Final = "gen_ai.user.message"
GEN_AI_TOOL_MESSAGE: Final = "gen_ai.tool.message"
GEN_AI_CONTENT_PROMPT: Final = "gen_ai.content.prompt"
GEN_AI_CONTENT_COMPLETION: Final = "gen_ai.content.completion"
GEN_AI_OPERATION_DETAILS: Final = "gen_ai.client.inference.operation.details"

OPENINFERENCE_SPAN_KIND: Final = "openinference.span.kind"
LLM_MODEL_NAME: Final = "llm.model_name"
LLM_PROVIDER: Final = "llm.provider"
LLM_FINISH_REASON: Final = "llm.finish_reason"
LLM_TOKEN_COUNT_PROMPT: Final = "llm.token_count.prompt"
LLM_TOKEN_COUNT_COMPLETION: Final = "llm.token_count.completion"
LLM_TOKEN_COUNT_CACHE_READ: Final = "llm.token_count.prompt_details.cache_read"
LLM_TOKEN_COUNT_CACHE_WRITE: Final = "llm.token_count.prompt_details.cache_write"
LLM_TOKEN_COUNT_REASONING: Final = "llm.token_count.completion_details.reasoning"
LLM_INPUT_MESSAGES: Final = "llm.input_messages"
LLM_OUTPUT_MESSAGES: Final = "llm.output_messages"
INPUT_VALUE: Final = "input.value"
OUTPUT_VALUE: Final = "output.value"
TOOL_NAME: Final = "tool.name"
TOOL_PARAMETERS: Final = "tool.parameters"
TOOL_CALL_ID: Final = "tool_call.id"
SESSION_ID: Final = "session.id"
AGENT_NAME: Final = "agent.name"
GRAPH_NODE_ID: Final = "graph.node.id"
BEEAI_TARGET: Final = "target"

TRACELOOP_SPAN_KIND: Final = "traceloop.span.kind"
TRACELOOP_ENTITY_NAME: Final = "traceloop.entity.name"
TRACELOOP_ENTITY_INPUT: Final = "traceloop.entity.input"
TRACELOOP_ENTITY_OUTPUT: Final = "traceloop.entity.output"
TRACELOOP_ASSOCIATION: Final = "traceloop.association.properties."
LLM_REQUEST_TYPE: Final = "llm.request.type"
LLM_PROMPTS: Final = "llm.prompts"
LLM_COMPLETIONS: Final = "llm.completions"
LLM_USAGE_PROMPT_TOKENS: Final = "llm.usage.prompt_tokens"
LLM_USAGE_COMPLETION_TOKENS: Final = "llm.usage.completion_tokens"

VERCEL_OPERATION: Final = "ai.operationId"
VERCEL_FUNCTION: Final = "ai.telemetry.functionId"
VERCEL_RESPONSE_TEXT: Final = "ai.response.text"
VERCEL_RESPONSE_TOOL_CALLS: Final = "ai.response.toolCalls"
VERCEL_PROMPT_MESSAGES: Final = "ai.prompt.messages"
VERCEL_TOOL_NAME: Final = "ai.toolCall.name"
VERCEL_TOOL_ID: Final = "ai.toolCall.id"
VERCEL_TOOL_ARGUMENTS: Final = "ai.toolCall.args"
VERCEL_TOOL_RESULT: Final = "ai.toolCall.result"
VERCEL_USAGE_PROMPT: Final = "ai.usage.promptTokens"
VERCEL_USAGE_COMPLETION: Final = "ai.usage.completionTokens"
VERCEL_USAGE_INPUT: Final = "ai.usage.inputTokens"
VERCEL_USAGE_OUTPUT: Final = "ai.usage.outputTokens"
VERCEL_SESSION: Final = "ai.telemetry.metadata.sessionId"

PYDANTIC_AGENT_NAME: Final = "agent_name"
PYDANTIC_EVENTS: Final = "events"
PYDANTIC_TOOL_ARGUMENTS: Final = "tool_arguments"
PYDANTIC_TOOL_RESPONSE: Final = "tool_response"
ADK_TOOL_ARGUMENTS: Final = "gcp.vertex.agent.tool_call_args"
ADK_TOOL_RESPONSE: Final = "gcp.vertex.agent.tool_response"
ADK_LLM_RESPONSE: Final = "gcp.vertex.agent.llm_response"
ADK_LLM_REQUEST: Final = "gcp.vertex.agent.llm_request"
ADK_SESSION: Final = "gcp.vertex.agent.session_id"

LANGSMITH_SPAN_KIND: Final = "langsmith.span.kind"
LANGSMITH_SESSION: Final = "langsmith.metadata.session_id"
LANGSMITH_THREAD: Final = "langsmith.metadata.thread_id"

LANGFUSE_TYPE: Final = "langfuse.observation.type"
LANGFUSE_INPUT: Final = "langfuse.observation.input"
LANGFUSE_OUTPUT: Final = "langfuse.observation.output"
LANGFUSE_MODEL: Final = "langfuse.observation.model.name"
LANGFUSE_USAGE: Final = "langfuse.observation.usage_details"
LANGFUSE_SESSION: Final = "langfuse.session.id"

EXCEPTION_EVENT: Final = "exception"
EXCEPTION_TYPE: Final = "exception.type"
EXCEPTION_MESSAGE: Final = "exception.message"

# --- Metrics ------------------------------------------------------------------------------------------

METRIC_RUNS_STARTED: Final = Metric("loopeval.runs.started", "{run}", "Runs that began")
METRIC_RUNS: Final = Metric("loopeval.runs", "{run}", "Runs that ended, by outcome and verdict")
METRIC_DOOM_LOOP_FIRED: Final = Metric(
    "loopeval.doom_loop.fired", "{event}", "Doom loops, added when they fire"
)
METRIC_GUARD_INTERVENTIONS: Final = Metric("loopeval.guard.interventions", "{event}", "Guard events")
METRIC_RUN_ITERATIONS: Final = Metric("loopeval.run.iterations", "{iteration}", "Iterations of a run")
METRIC_RUN_DURATION: Final = Metric("loopeval.run.duration", "s", "Wall-clock duration of a run")
METRIC_RUN_SCORE_RATIO: Final = Metric(
    "loopeval.run.score_ratio", "1", "Best score of a run over its threshold"
)
METRIC_ITERATIONS: Final = Metric("loopeval.iterations", "{iteration}", "Iterations that ran")
METRIC_ITERATIONS_WASTED: Final = Metric(
    "loopeval.iterations.wasted", "{iteration}", "Iterations that ran after the threshold was met"
)
METRIC_TOKENS: Final = Metric("loopeval.tokens", "{token}", "Tokens, as each model call ends")
METRIC_WASTED_TOKENS: Final = Metric("loopeval.wasted_tokens", "{token}", "Tokens of wasted iterations")
METRIC_JUDGE_TOKENS: Final = Metric(
    "loopeval.judge_tokens", "{token}", "Tokens of judges, as each of their model calls ends"
)
METRIC_COST: Final = Metric("loopeval.cost", "USD", "Cost of model calls whose price is known, as each ends")
METRIC_JUDGE_COST: Final = Metric(
    "loopeval.judge_cost", "USD", "Cost of the model calls of judges whose price is known, as each ends"
)
METRIC_WASTED_COST: Final = Metric("loopeval.wasted_cost", "USD", "Cost of wasted iterations")
METRIC_TOKEN_BUDGET_EXCEEDED: Final = Metric(
    "loopeval.token_budget.exceeded", "{run}", "Runs that went over their token budget, added when they do"
)
METRIC_RUN_TOKEN_BUDGET_RATIO: Final = Metric(
    "loopeval.run.token_budget_ratio", "1", "Tokens of a run over its token budget"
)
METRIC_RUN_OPEN: Final = Metric("loopeval.run.open", "{run}", "Runs in progress")
METRIC_RUN_IDLE_MAX: Final = Metric(
    "loopeval.run.idle_max", "s", "Longest time since anything happened in a run in progress"
)
METRIC_ITERATION_DURATION: Final = Metric(
    "loopeval.iteration.duration", "s", "Wall-clock duration of an iteration (with `iteration_metrics`)"
)
METRIC_ITERATION_SCORE_RATIO: Final = Metric(
    "loopeval.iteration.score_ratio",
    "1",
    "Score of an iteration over the threshold (with `iteration_metrics`)",
)
METRIC_TRACKER_EVICTED_RUNS: Final = Metric(
    "loopeval.tracker.evicted_runs", "{run}", "Runs that the tracker gave up following, by reason"
)
METRIC_TRACKER_LATE_SPANS: Final = Metric(
    "loopeval.tracker.late_spans", "{span}", "Spans of a run that ended after its root"
)
METRIC_TRACKER_ERRORS: Final = Metric(
    "loopeval.tracker.errors", "{error}", "Errors of ours that were kept from the program, by place"
)

METRIC_SERVE_SPANS: Final = Metric("loopeval.serve.spans", "{span}", "Spans that serve took in")
METRIC_SERVE_MARKED_SPANS: Final = Metric(
    "loopeval.serve.marked_spans", "{span}", "Spans that tell of loops, agents, models or tools"
)
METRIC_SERVE_DROPPED: Final = Metric(
    "loopeval.serve.dropped", "{span}", "Spans that went on but count for no verdict, by reason"
)
METRIC_SERVE_TRACES_CLOSED: Final = Metric(
    "loopeval.serve.traces_closed", "{trace}", "Traces with such spans that are over, by reason"
)
METRIC_SERVE_TRACES_OPEN: Final = Metric(
    "loopeval.serve.traces_open", "{trace}", "Traces with such spans that are followed"
)
METRIC_SERVE_HELD: Final = Metric("loopeval.serve.held", "By", "Memory of the spans that are held, about")
METRIC_SERVE_REQUESTS: Final = Metric(
    "loopeval.serve.requests", "{request}", "Requests that were answered, by status, signal and tenant"
)
METRIC_SERVE_ALREADY_JUDGED: Final = Metric(
    "loopeval.serve.already_judged", "{run}", "Runs whose root brought a verdict"
)
METRIC_SERVE_VERDICTS_LOST: Final = Metric(
    "loopeval.serve.verdicts_lost", "{span}", "Verdict spans that the next hop did not take"
)
METRIC_SERVE_RUNS_WAITING: Final = Metric(
    "loopeval.serve.runs_waiting", "{run}", "Runs that the store did not take, and is asked to take again"
)
METRIC_SERVE_RUNS_LOST: Final = Metric(
    "loopeval.serve.runs_lost", "{run}", "Runs that the store did not take and that were given up"
)
SERVE_STATUS: Final = "loopeval.serve.status"
"""Status of an answer of `serve` (metrics)."""
SERVE_SIGNAL: Final = "loopeval.serve.signal"
"""`traces`, `metrics` or `logs` (metrics)."""
SERVE_TENANT: Final = "loopeval.serve.tenant"
"""Whose token a request brought (metrics)."""

SINCE: Final = "loopeval.since"
"""When a count of doom loops or exceeded budgets began, in ms, where it may begin anew (metrics)."""
RUN_NESTED: Final = "loopeval.run.nested"
"""Whether the run is inside another run (metrics)."""
REASON: Final = "loopeval.reason"
"""Why a run was evicted, or where an error was (metrics)."""
AGENT_UNKNOWN: Final = "unknown"
"""Agent name where none is known."""
AGENT_OTHER: Final = "_other"
"""Agent name on metrics once a process has shown 100 of them; service and agent where `serve` has no more room."""

# --- Resources: what emitted a run ----------------------------------------------------------------------

SERVICE_NAME: Final = "service.name"
SERVICE_VERSION: Final = "service.version"
DEPLOYMENT_ENVIRONMENT_NAME: Final = "deployment.environment.name"
DEPLOYMENT_ENVIRONMENT: Final = "deployment.environment"
"""What it was called before."""

# --- Enum values ----------------------------------------------------------------------------------------

MODE_OPTIMIZE: Final = "optimize"
MODE_REVIEW: Final = "review"
MODE_GOAL: Final = "goal"
MODE_AGENT: Final = "agent"
MODES: Final = (MODE_OPTIMIZE, MODE_REVIEW, MODE_GOAL, MODE_AGENT)

OUTCOME_COMPLETED: Final = "completed"
OUTCOME_LIMIT: Final = "limit"
OUTCOME_FAILED: Final = "failed"
OUTCOME_STOPPED: Final = "stopped"
OUTCOME_PAUSED: Final = "paused"
OUTCOME_CANCELLED: Final = "cancelled"
OUTCOME_INTERRUPTED: Final = "interrupted"
OUTCOME_INCOMPLETE: Final = "incomplete"
OUTCOMES: Final = (
    OUTCOME_COMPLETED,
    OUTCOME_LIMIT,
    OUTCOME_FAILED,
    OUTCOME_STOPPED,
    OUTCOME_PAUSED,
    OUTCOME_CANCELLED,
    OUTCOME_INTERRUPTED,
    OUTCOME_INCOMPLETE,
)
OUTCOMES_WITHOUT_VERDICT: Final = frozenset(
    {OUTCOME_PAUSED, OUTCOME_CANCELLED, OUTCOME_INTERRUPTED, OUTCOME_INCOMPLETE}
)

REASON_NOT_CONVERGED: Final = "not_converged"
REASON_WASTED_ITERATIONS: Final = "wasted_iterations"
REASON_DOOM_LOOP: Final = "doom_loop"
REASON_OVER_TOKEN_BUDGET: Final = "over_token_budget"

KIND_REPEATED_ACTION: Final = "repeated_action"
KIND_REPEATED_FAILURE: Final = "repeated_failure"
KIND_NO_PROGRESS: Final = "no_progress"
KIND_CIRCULAR_PLAN: Final = "circular_plan"
KIND_RESOURCE_EXHAUSTION: Final = "resource_exhaustion"
KIND_REPEATED_OUTPUT: Final = "repeated_output"
KIND_LOOP_DETECTED: Final = "loop_detected"
KIND_OTHER: Final = "other"
GUARD_KINDS: Final = (
    KIND_REPEATED_ACTION,
    KIND_REPEATED_FAILURE,
    KIND_NO_PROGRESS,
    KIND_CIRCULAR_PLAN,
    KIND_RESOURCE_EXHAUSTION,
    KIND_REPEATED_OUTPUT,
    KIND_LOOP_DETECTED,
    KIND_OTHER,
)

ACTION_OBSERVE: Final = "observe"
ACTION_WARN: Final = "warn"
ACTION_BLOCK: Final = "block"
ACTION_HALT: Final = "halt"
ACTION_RECOVER: Final = "recover"
GUARD_ACTIONS: Final = (ACTION_OBSERVE, ACTION_WARN, ACTION_BLOCK, ACTION_HALT, ACTION_RECOVER)

SOURCE_APPLICATION: Final = "application"
SOURCE_DETECTOR: Final = "detector"
SOURCE_PRAISONAI_ESCALATION: Final = "praisonaiagents.escalation"
SOURCE_PRAISONAI_AUTONOMY: Final = "praisonaiagents.autonomy"
SOURCE_PRAISONAI_LOOP_DETECTION: Final = "praisonaiagents.loop_detection"
SOURCE_PRAISONAI_LOOP_DETECTION_PLUGIN: Final = "praisonaiagents.loop_detection_plugin"
SOURCE_PRAISONAI_LOOP_GUARD: Final = "praisonaiagents.loop_guard"
SOURCE_PRAISONAI_OBSERVABILITY: Final = "praisonaiagents.observability"
SOURCE_PRAISONAI_PERMISSIONS: Final = "praisonaiagents.permissions"
GUARD_SOURCES: Final = (
    SOURCE_APPLICATION,
    SOURCE_DETECTOR,
    SOURCE_PRAISONAI_ESCALATION,
    SOURCE_PRAISONAI_AUTONOMY,
    SOURCE_PRAISONAI_LOOP_DETECTION,
    SOURCE_PRAISONAI_LOOP_DETECTION_PLUGIN,
    SOURCE_PRAISONAI_LOOP_GUARD,
    SOURCE_PRAISONAI_OBSERVABILITY,
    SOURCE_PRAISONAI_PERMISSIONS,
)

EVIDENCE_FULL: Final = "full"
EVIDENCE_ARGUMENTS: Final = "arguments"
EVIDENCE_FINGERPRINT: Final = "fingerprint"
EVIDENCE_NONE: Final = "none"

FRAMEWORK_OWN: Final = "otel_loopeval"
FRAMEWORK_OTHER: Final = "other"
FRAMEWORK_PRAISONAI: Final = "praisonaiagents"
FRAMEWORK_AGENT_FRAMEWORK: Final = "agent_framework"
FRAMEWORK_AGNO: Final = "agno"
FRAMEWORK_AUTOGEN: Final = "autogen"
FRAMEWORK_BEEAI: Final = "beeai"
FRAMEWORK_CREWAI: Final = "crewai"
FRAMEWORK_DSPY: Final = "dspy"
FRAMEWORK_GOOGLE_ADK: Final = "google_adk"
FRAMEWORK_HAYSTACK: Final = "haystack"
FRAMEWORK_KOOG: Final = "koog"
FRAMEWORK_LANGCHAIN: Final = "langchain"
FRAMEWORK_LLAMA_INDEX: Final = "llama_index"
FRAMEWORK_OPENAI_AGENTS: Final = "openai_agents"
FRAMEWORK_PYDANTIC_AI: Final = "pydantic_ai"
FRAMEWORK_SEMANTIC_KERNEL: Final = "semantic_kernel"
FRAMEWORK_SMOLAGENTS: Final = "smolagents"
FRAMEWORK_STRANDS: Final = "strands"
FRAMEWORK_VERCEL_AI: Final = "vercel_ai"
FRAMEWORK_CLIENT: Final = "client"
"""A model's client with its instrumentation, in a loop that the application wrote by hand."""

DEFAULT_THRESHOLD: Final = 8.0
"""Threshold of a run that brings none, as in the specification."""
MAX_DELTAS: Final = 128
"""Score deltas kept on the root span: OpenTelemetry's own default for list-like things on a span."""
