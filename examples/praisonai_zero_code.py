"""PraisonAI without a changed line: this is the Quick Start of its EvaluationLoop.

    pip install "otel-loopeval[auto,praisonai]"
    export OPENAI_API_KEY=...
    export OTEL_SERVICE_NAME=writer OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4317
    opentelemetry-instrument python praisonai_zero_code.py

The run arrives as a trace: a span for the run with its verdict, and one for each iteration with its score.
"""

from praisonaiagents import Agent
from praisonaiagents.eval import EvaluationLoop

agent = Agent(name="writer", instructions="Write compelling content")

loop = EvaluationLoop(
    agent=agent,
    criteria="Content is engaging and well-structured",
    threshold=8.0,
    max_iterations=5,
)

result = loop.run("Write a product description for an AI assistant")
print(result.final_report)
