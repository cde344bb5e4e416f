"""Loop health at the scale of a fleet: verdicts of stored and of streaming spans, with Apache Spark."""

from otel_loopeval.spark.api import health
from otel_loopeval.spark.desk import Patience
from otel_loopeval.spark.kafka import register as register_kafka

__all__ = ["Patience", "health", "register_kafka"]
