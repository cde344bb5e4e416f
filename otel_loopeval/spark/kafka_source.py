"""The Kafka source's classes, in Spark's terms. Imported only where pyspark is."""

# ruff: noqa: N802 - the names are Spark's
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import (  # type: ignore[import]
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)

from otel_loopeval.spark.kafka import FORMAT, SCHEMA, Offsets, Settings, Topic, limited, parts

# The bases are Any where pyspark is not installed, and half typed where it is.
# pyright: reportUntypedBaseClass=false, reportUnknownVariableType=false, reportMissingImports=false
# pyright: reportIncompatibleMethodOverride=false, reportUnknownMemberType=false, reportUnknownParameterType=false
# pyright: reportUnknownArgumentType=false


class Part(InputPartition):
    """Some messages of one partition: from ``start`` on and before ``end``."""

    def __init__(self, partition: int, start: int, end: int) -> None:
        super().__init__((partition, start, end))
        self.partition, self.start, self.end = partition, start, end


class _Reading:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.topic = Topic(settings)

    def read(self, partition: Any) -> Iterator[Any]:
        """The messages of a part."""
        return self.topic.read(partition.partition, partition.start, partition.end)


class KafkaReader(_Reading, DataSourceReader):
    """Reads what there is, once."""

    def partitions(self) -> Sequence[Part]:
        """All of it."""
        first, last = self.topic.bounds()
        return [Part(*part) for part in parts(first, last)]


class KafkaStreamReader(_Reading, DataSourceStreamReader):
    """Reads what comes."""

    def initialOffset(self) -> Offsets:
        """Where a new query begins."""
        first, last = self.topic.bounds()
        return first if self.settings.starting == "earliest" else last

    def latestOffset(self, start: Offsets | None = None, limit: Any = None) -> Offsets:
        """How far the next batch goes. Spark before 4.2 gives neither argument: there is no limit then."""
        _, last = self.topic.bounds()
        return last if start is None else limited(start, last, getattr(limit, "max_rows", None))

    def getDefaultReadLimit(self) -> Any:
        """What a batch takes, from Spark 4.2 on."""
        from pyspark.sql.streaming import datasource  # noqa: PLC0415 - not there before  # type: ignore[import]

        most = self.settings.max_offsets
        return datasource.ReadAllAvailable() if most is None else datasource.ReadMaxRows(most)

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[Part]:
        """The parts of a batch."""
        return [Part(*part) for part in parts(start, end)]

    def commit(self, end: Offsets) -> None:
        """The checkpoint has it."""

    def stop(self) -> None:
        """Nothing is open between batches."""


class KafkaSource(DataSource):
    """The messages of a Kafka topic: topic, partition, offset and value."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return FORMAT

    def schema(self) -> str:
        """The columns."""
        return SCHEMA

    def reader(self, schema: Any) -> KafkaReader:  # noqa: ARG002 - Spark's
        """For ``spark.read``."""
        return KafkaReader(Settings(self.options))

    def streamReader(self, schema: Any) -> KafkaStreamReader:  # noqa: ARG002 - Spark's
        """For ``spark.readStream``."""
        return KafkaStreamReader(Settings(self.options))
