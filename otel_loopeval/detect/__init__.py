"""Doom-loop detection over a stream of steps."""

from otel_loopeval.detect.detector import DoomLoopDetector, Observation
from otel_loopeval.detect.steps import ModelOutput, ToolCall, UserMessage

__all__ = ["DoomLoopDetector", "ModelOutput", "Observation", "ToolCall", "UserMessage"]
