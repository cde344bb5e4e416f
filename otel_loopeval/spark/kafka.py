"""Kafka as a source in Python, over ``confluent-kafka``, for clusters without the connector for the JVM.

Where the connector is there, use it: ``spark.readStream.format("kafka")`` has the same column ``value``.
"""

# ruff: noqa: PLC0415 - libraries of an extra are imported where they are used
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

FORMAT: Final = "loopeval_kafka"
SCHEMA: Final = "topic string, partition int, offset bigint, value binary"

_TIMEOUT_S: Final = 30.0
_MESSAGES: Final = 100
_BATCH_BYTES: Final = 16 * 2**20
_MAX_AHEAD_KB: Final = 4096
_OURS: Final = frozenset({"topic", "startingoffsets", "maxoffsetspertrigger", "path"})
_CLIENT: Final = "kafka."
Offsets = dict[str, int]
"""Partition (as text, since offsets are stored as JSON) → the offset of the next message."""


class Settings:
    """The options of the source.

    Args:
        options: As given with ``.option()``: ``topic``, ``kafka.bootstrap.servers``, other settings of the
            client with ``kafka.`` before their names, ``startingOffsets`` (``earliest`` or ``latest``; of
            a new query, default ``earliest``), ``maxOffsetsPerTrigger``.

    Raises:
        ValueError: An option is missing, or is none, or has a value that cannot be.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        # Spark keeps options without regard to case.
        found = {name.lower(): value for name, value in options.items()}
        unknown = sorted(name for name in found if name not in _OURS and not name.startswith(_CLIENT))
        if unknown:
            raise ValueError(
                f"no such option: {', '.join(unknown)}; there are topic, startingOffsets, "
                f"maxOffsetsPerTrigger and kafka.*"
            )
        self.topic = found.get("topic", "")
        if not self.topic:
            raise ValueError("the option 'topic' is needed: the name of a Kafka topic")
        self.client = {name[len(_CLIENT) :]: found[name] for name in found if name.startswith(_CLIENT)}
        if not self.client.get("bootstrap.servers"):
            raise ValueError("the option 'kafka.bootstrap.servers' is needed, such as broker:9092")
        self.starting = found.get("startingoffsets", "earliest")
        if self.starting not in ("earliest", "latest"):
            raise ValueError(f"startingOffsets must be earliest or latest, got {self.starting!r}")
        most = found.get("maxoffsetspertrigger")
        if most is not None and (not most.isdecimal() or int(most) < 1):
            raise ValueError(f"maxOffsetsPerTrigger must be a whole number from 1, got {most!r}")
        self.max_offsets = None if most is None else int(most)

    def consumer(self) -> Any:
        """A client that commits nothing: the offsets are Spark's."""
        from confluent_kafka import Consumer  # type: ignore[import]

        return cast("Any", Consumer)(
            {
                "group.id": FORMAT,
                # Each part has a client of its own, and what that fetches beyond its part is for nothing: by
                # default all that waits, up to 64 MB, in each micro-batch again.
                "queued.max.messages.kbytes": _MAX_AHEAD_KB,
                **self.client,
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "error",  # messages that are gone are no silent gap
                "enable.partition.eof": True,
            }
        )


class Topic:
    """Which messages there are.

    Args:
        settings: The options of the source.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def bounds(self) -> tuple[Offsets, Offsets]:
        """The offsets of the first messages, and of those after the last ones.

        Raises:
            RuntimeError: The topic cannot be read.
        """
        from confluent_kafka import TopicPartition  # type: ignore[import]

        topic = self._settings.topic
        consumer = self._settings.consumer()
        first: Offsets = {}
        last: Offsets = {}
        try:
            found = consumer.list_topics(topic, timeout=_TIMEOUT_S).topics.get(topic)
            if found is None or found.error is not None or not found.partitions:
                why = "no such topic" if found is None or found.error is None else found.error
                raise RuntimeError(f"cannot read the Kafka topic {topic!r}: {why}")
            for number in sorted(found.partitions):
                low, high = consumer.get_watermark_offsets(
                    cast("Any", TopicPartition)(topic, number), timeout=_TIMEOUT_S
                )
                first[str(number)], last[str(number)] = low, high
        finally:
            consumer.close()
        return first, last

    def read(self, partition: int, start: int, end: int) -> Iterator[Any]:
        """The messages of a partition from one offset on and before another, as Arrow batches.

        Raises:
            RuntimeError: They cannot be read, or not all of them are there any more.
        """
        from confluent_kafka import KafkaError, TopicPartition  # type: ignore[import]

        consumer = self._settings.consumer()
        of = f"partition {partition} of the Kafka topic {self._settings.topic!r}"
        rows: list[tuple[int, bytes | None]] = []
        size = 0
        at = start
        try:
            consumer.assign([cast("Any", TopicPartition)(self._settings.topic, partition, start)])
            while at < end:
                messages = consumer.consume(min(_MESSAGES, end - at), timeout=_TIMEOUT_S)
                if not messages:
                    raise RuntimeError(f"no message from {of} in {_TIMEOUT_S:.0f} s, at offset {at} of {end}")
                for message in messages:
                    error = message.error()
                    if error is not None and error.code() == cast("Any", KafkaError)._PARTITION_EOF:  # noqa: SLF001 - so the library spells it
                        at = max(at, message.offset())  # the last offsets may be those of transactions
                    elif error is not None:
                        if error.fatal() or not error.retriable():
                            raise RuntimeError(f"cannot read {of} at offset {at}: {error}")
                    elif message.offset() < end:
                        rows.append((message.offset(), message.value()))
                        size += len(message)
                        at = message.offset() + 1
                    else:
                        at = end
                if size >= _BATCH_BYTES:
                    yield self._batch(partition, rows)
                    rows, size = [], 0
            if rows:
                yield self._batch(partition, rows)
        finally:
            consumer.close()

    def _batch(self, partition: int, rows: list[tuple[int, bytes | None]]) -> Any:
        import pyarrow as pa  # type: ignore[import]

        offsets, values = zip(*rows, strict=True)
        arrow = cast("Any", pa)
        return arrow.RecordBatch.from_arrays(
            [
                arrow.array([self._settings.topic] * len(rows), arrow.string()),
                arrow.array([partition] * len(rows), arrow.int32()),
                arrow.array(offsets, arrow.int64()),
                arrow.array(values, arrow.binary()),
            ],
            names=["topic", "partition", "offset", "value"],
        )


def parts(start: Offsets, end: Offsets) -> list[tuple[int, int, int]]:
    """What there is to read: partition, first offset, and the one after the last.

    A partition that has come to the topic meanwhile is read from its beginning.
    """
    found = ((int(number), start.get(number, 0), until) for number, until in end.items())
    return [part for part in found if part[1] < part[2]]


def limited(start: Offsets, end: Offsets, most: int | None) -> Offsets:
    """An end that is at most so many messages away, in fair shares; at least one of each partition."""
    ahead = {number: until - start.get(number, 0) for number, until in end.items()}
    total = sum(ahead.values())
    if most is None or total <= most:
        return end
    return {
        number: start.get(number, 0) + min(ahead[number], max(ahead[number] * most // total, 1))
        for number in end
    }


def register(spark: Any) -> None:
    """Make the source known to a session: ``spark.readStream.format("loopeval_kafka")``.

    Args:
        spark: The session.
    """
    from otel_loopeval.spark.kafka_source import KafkaSource

    spark.dataSource.register(KafkaSource)
