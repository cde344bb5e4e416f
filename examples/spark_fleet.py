"""The health of a fleet's loops, with Apache Spark: a table of verdicts, by day.

    pip install 'otel-loopeval[spark]'        # and Java 17
    python examples/spark_fleet.py batch  /data/otel/*.jsonl  /data/verdicts
    python examples/spark_fleet.py stream broker:9092 otlp_spans /data/verdicts

The first reads what the Collector's file exporter has written. The second follows a topic that its Kafka
exporter writes with ``partition_traces_by_id: true``, and never ends. Both write the same table.
"""

import sys

from pyspark.sql import SparkSession  # type: ignore[import]

from otel_loopeval.spark import Patience, health, register_kafka


def batch(pattern: str, verdicts: str) -> None:
    """Judge files, once."""
    spark = SparkSession.builder.appName("loop health").getOrCreate()
    table = health(spark.read.text(pattern))
    table.write.mode("append").partitionBy("day").parquet(verdicts)
    table.groupBy("agent", "outcome", "passed").count().orderBy("agent").show()


def stream(servers: str, topic: str, verdicts: str) -> None:
    """Judge a topic, for ever."""
    spark = SparkSession.builder.appName("loop health").getOrCreate()
    register_kafka(spark)  # or format("kafka"), where its connector is installed
    messages = (
        spark.readStream.format("loopeval_kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", topic)
        .load()
    )
    (
        health(messages, patience=Patience(grace_s=10, idle_s=60))
        .writeStream.partitionBy("day")
        .format("parquet")
        .option("path", verdicts)
        .option("checkpointLocation", f"{verdicts}/_checkpoint")
        .trigger(processingTime="10 seconds")
        .start()
        .awaitTermination()
    )


if __name__ == "__main__":
    way, *arguments = sys.argv[1:] or [""]
    ways = {"batch": batch, "stream": stream}
    if way not in ways:
        sys.exit(__doc__)
    ways[way](*arguments)
