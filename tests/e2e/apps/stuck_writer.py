"""The Quick Start of PraisonAI's EvaluationLoop, with more iterations: enough for a model that is stuck."""

from praisonaiagents import Agent
from praisonaiagents.eval import EvaluationLoop

agent = Agent(name="writer", instructions="Write compelling content")

loop = EvaluationLoop(
    agent=agent,
    criteria="Content is engaging and well-structured",
    threshold=8.0,
    max_iterations=12,
)

result = loop.run("Write a product description for an AI assistant")
print(result.success)
