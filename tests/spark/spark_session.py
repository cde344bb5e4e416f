"""A Spark session on this machine, and what ``score`` says of the same files."""

import contextlib
import io
import json
import os
import sys
from collections.abc import Generator
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import Any, cast

import otel_loopeval
from otel_loopeval.cli.main import main

PACKAGE = Path(otel_loopeval.__file__).parent.parent
BRIEF = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
Row = dict[str, Any]


def required() -> bool:
    """Whether tests may not skip: in the stage of CI that is theirs."""
    return os.environ.get("SPARK_TESTS") == "required"


def why_not() -> str | None:
    """Why there is no Spark here; None where there is."""
    for name in ("pyspark", "pyarrow", "msgspec", "pandas"):
        if find_spec(name) is None:
            return f"{name} is not installed (the extra [spark])"
    return None if which("java") is not None else "Spark needs Java 17, and there is no java here"


@contextlib.contextmanager
def session(slots: int = 1, *, brief: bool = False) -> Generator[Any, None, None]:
    """A few task slots, everything on loopback.

    Args:
        slots: How many.
        brief: Whether it is for jobs that are over before the JVM's better compiler would pay.
    """
    from pyspark.sql import SparkSession  # noqa: PLC0415 - an extra  # type: ignore[import]

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = str(PACKAGE)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.adaptive.enabled": "false",  # planning costs more here than it saves
        "spark.sql.legacy.parquet.nanosAsLong": "true",
        "spark.log.level": "ERROR",
    }
    if brief:
        settings["spark.driver.extraJavaOptions"] = BRIEF
    builder = cast("Any", SparkSession).builder.master(f"local[{slots}]").appName("tests")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


def rows_of(frame: Any) -> list[Row]:
    """The rows of a verdict table, in a fixed order, without the day."""
    rows = [row.asDict() for row in frame.collect()]
    assert {str(row.pop("day")) for row in rows} <= {row["started"][:10] for row in rows}
    return in_order(rows)


def committed(spark: Any, path: Path) -> list[Row]:
    """What a stream has written so far: the schema is told, since that may be nothing."""
    if not (path / "_spark_metadata").exists():
        return []
    from otel_loopeval.spark.schema import VERDICT_COLUMNS, ddl  # noqa: PLC0415 - needs the extra

    return rows_of(spark.read.schema(ddl(VERDICT_COLUMNS)).parquet(str(path)))


def scored(*arguments: str) -> list[Row]:
    """What ``score`` says, as rows."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main(["score", *arguments, "--format", "jsonl", "--fail-on", "none"]) == 0
    found = [json.loads(line) for line in out.getvalue().splitlines()]
    extra = {"schema_version", "failed_on", "type"}
    return in_order([{k: v for k, v in row.items() if k not in extra} for row in found if "trace_id" in row])


def in_order(rows: list[Row]) -> list[Row]:
    """Rows by trace and run."""
    return sorted(rows, key=lambda row: (row["trace_id"], row["started"], row["nested"], row["id"]))
