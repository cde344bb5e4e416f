"""Files that are damaged, foreign, read-only, in use or full: a clear error, and nothing else stops."""

import gzip
import os
import sqlite3
import subprocess
import sys
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory

import pytest
from support.served_runs import NOW_NS, served

from otel_loopeval.server.store import schema as store_schema
from otel_loopeval.server.store.queries import RunFilter
from otel_loopeval.server.store.schema import StoreError, UnkeepableError
from otel_loopeval.server.store.store import Store
from otel_loopeval.server.store.tables import UPGRADES

TESTS = Path(__file__).parents[1]


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    path.write_bytes(b"no database at all, but long enough to be one" * 100)
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"runs\.db' fails: file is not a database; move the file away"):
        Store(path)
    assert path.read_bytes() == before
    path.write_bytes(b"")  # what a process leaves that ended while it made the file
    Store(path).close()


def test_a_database_of_another_program(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE mine (x)")
    other.close()
    with pytest.raises(StoreError, match="is a database of another program"):
        Store(path)


def test_a_store_of_a_newer_version(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    Store(path).close()
    with sqlite3.connect(path) as newer:
        newer.execute("PRAGMA user_version = 7")
    newer.close()
    with pytest.raises(
        StoreError, match="has version 7 of the schema, and this otel-loopeval knows versions"
    ):
        Store(path)


def test_a_newer_store_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    Store(path).close()
    with sqlite3.connect(path) as newer:
        newer.execute("ALTER TABLE runs ADD COLUMN later TEXT")
        newer.execute("PRAGMA user_version = 3")
    newer.close()
    with pytest.raises(StoreError, match="use the newer otel-loopeval, or another file"):
        Store(path)
    with sqlite3.connect(path) as newer:
        assert newer.execute("PRAGMA user_version").fetchone() == (3,)
        assert newer.execute("SELECT count(later) FROM runs").fetchone() == (0,)
    newer.close()


def first_version(path: Path) -> None:
    """A store as the first version made it: two runs, and two traces that are open, of no tenant."""
    path.write_bytes(gzip.decompress(Path(__file__).with_name("store_version_1.db.gz").read_bytes()))


def schema(path: Path) -> list[tuple[object, ...]]:
    """The columns of each table and index, and the conditions of indexes, whatever made them."""
    connection = sqlite3.connect(path)
    told: list[tuple[object, ...]] = []
    for kind, name, sql in connection.execute("SELECT type, name, sql FROM sqlite_master ORDER BY name"):
        about = "table_info" if kind == "table" else "index_xinfo"
        condition = str(sql).partition(" WHERE ")[2]
        told.append((kind, name, condition, connection.execute(f"PRAGMA {about} ({name})").fetchall()))
    connection.close()
    return told


def test_a_store_of_the_first_version_is_brought_up_to_date_with_all_that_it_has(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    first_version(path)
    with sqlite3.connect(path) as file:
        assert file.execute("PRAGMA user_version").fetchone() == (1,)
    file.close()
    for _ in range(2):  # once is enough
        store = Store(path, clock=lambda: NOW_NS)
        view = store.view()
        runs = view.runs(RunFilter()).runs
        assert [(run.record.agent, run.tenant, run.record.passed) for run in runs] == [
            ("looping", "", False),
            ("good", "", True),
        ]
        found = view.run(f"{1:032x}-{1:016x}")
        assert found is not None
        assert [iteration.score for iteration in found[1].iterations] == [4.0, 9.0]
        assert store.view("red").runs(RunFilter()).runs == (), "they are nobody's"
        assert [(tenant, span.trace_id) for tenant, span in store.open_spans()] == [
            ("", 3),
            ("", 3),
            ("", 4),
            ("", 4),
        ]
        assert view.open_traces() == 2
        assert store.closed_traces(0, 10) == [("", 1), ("", 2)]
        store.put_run(served([4.0, 9.0], trace_id=1, agent="good")).result(10)  # it comes again
        assert view.counts(RunFilter())[None] == 2
        store.close()
    Store(tmp_path / "new.db").close()
    assert schema(path) == schema(tmp_path / "new.db")


def test_upgrades_are_made_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "runs.db"
    first_version(path)
    more = (
        "ALTER TABLE runs ADD COLUMN later TEXT DEFAULT 'x'",
        "UPDATE runs SET later = later || tenant || 'y'",
    )
    monkeypatch.setattr(store_schema, "UPGRADES", (*UPGRADES, *more))
    for _ in range(2):
        Store(path, clock=lambda: NOW_NS).close()
    with sqlite3.connect(path) as file:
        assert file.execute("PRAGMA user_version").fetchone() == (4,)
        assert file.execute("SELECT later FROM runs").fetchall() == [("xy",), ("xy",)]
    file.close()


def test_an_upgrade_that_fails_leaves_the_older_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "runs.db"
    first_version(path)
    before = schema(path)
    with monkeypatch.context() as patched:
        patched.setattr(store_schema, "UPGRADES", (f"{UPGRADES[0]}; NONSENSE",))
        with pytest.raises(StoreError, match='near "NONSENSE": syntax error'):
            Store(path)
    with sqlite3.connect(path) as file:
        assert file.execute("PRAGMA user_version").fetchone() == (1,)
    file.close()
    assert schema(path) == before
    Store(path).close()


def test_a_file_that_was_cut_off_is_an_error_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    store = Store(path, clock=lambda: NOW_NS)
    for future in [store.put_run(served([9.0, 9.5], trace_id=n)) for n in range(1, 300)]:
        future.result(10)
    store.close()
    half = path.read_bytes()[: path.stat().st_size // 2]
    path.write_bytes(half)
    with pytest.raises(StoreError, match="database disk image is malformed; move the file away"):
        Store(path, clock=lambda: NOW_NS)
    assert path.read_bytes() == half


def test_a_store_that_another_has_open(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.db")
    with pytest.raises(StoreError, match="is in use by another process"):
        Store(tmp_path / "runs.db")
    store.close()
    Store(tmp_path / "runs.db").close()


def test_a_link_to_a_store_that_another_has_open(tmp_path: Path) -> None:
    (tmp_path / "folder").symlink_to(".")
    (tmp_path / "link.db").symlink_to("runs.db")  # before there is such a file
    store = Store(tmp_path / "link.db")
    for name in ("runs.db", "link.db", "folder/runs.db"):
        with pytest.raises(StoreError, match=rf"{name}' is in use by another process"):
            Store(tmp_path / name)
    store.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "folder",
        "link.db",
        "runs.db",
        "runs.db-lock",
    ]


def test_what_is_no_regular_file_is_left_alone_with_its_neighbours(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link.db").symlink_to("pipe")
    for name in ("pipe", "link.db"):
        with pytest.raises(StoreError, match=rf"cannot open the store .*{name}': it takes a regular file$"):
            Store(tmp_path / name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.db", "pipe"]


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"cannot open the store .*: No such file or directory"):
        Store(tmp_path / "nowhere" / "runs.db")


def test_the_file_is_for_its_owner_only(tmp_path: Path) -> None:
    Store(tmp_path / "runs.db").close()
    assert (tmp_path / "runs.db").stat().st_mode & 0o777 == 0o600


READ_ONLY = """
import os, sys
from otel_loopeval.server.store.store import Store
from otel_loopeval.server.store.schema import StoreError
if os.getuid() == 0:
    os.setuid(65_534)  # root may write to anything
try:
    Store(sys.argv[1])
except StoreError as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX permissions")
@pytest.mark.parametrize("there", [True, False])
def test_a_file_or_a_folder_that_must_not_be_written_to(there: bool) -> None:
    with TemporaryDirectory() as folder:  # pytest's own cannot be entered by another user
        path = Path(folder, "runs.db")
        if there:
            Store(path).close()
            path.chmod(0o444)
            Path(f"{path}-lock").chmod(0o666)
        Path(folder).chmod(0o755)
        ran = subprocess.run(
            [sys.executable, "-c", READ_ONLY, str(path)],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": str(TESTS.parent)},
        )
    assert ran.stderr == ""
    assert ran.stdout == (
        f"cannot open the store {str(path)!r}: Permission denied (it takes a file that can be read and "
        "written, in a folder that is there and can be written to)\n"
    )


def test_damage_in_the_middle_is_an_error_and_the_store_still_closes(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    store = Store(path, clock=lambda: NOW_NS)
    for future in [store.put_run(served([9.0, 9.5], trace_id=n)) for n in range(1, 300)]:
        future.result(10)
    store.close()
    size = path.stat().st_size
    with path.open("r+b") as stream:
        stream.seek(4096 * 2)
        stream.write(b"\xff" * (size - 4096 * 2))
    store = Store(path, clock=lambda: NOW_NS)
    with pytest.raises(StoreError, match=r"runs\.db' fails: database disk image is malformed"):
        store.view().runs(RunFilter())
    with pytest.raises(StoreError, match="malformed; move the file away, and a new one is made"):
        store.put_run(served([9.0], trace_id=1)).result(10)
    assert "malformed" in store.view().trouble
    store.close()


def locked_store(path: Path) -> tuple[Store, sqlite3.Connection]:
    """A store, and somebody else who has its file until that one is closed."""
    store = Store(path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    return store, other


def test_another_process_that_has_the_file_keeps_others_waiting_once_and_not_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_schema, "BUSY_S", 0.5)
    store, other = locked_store(tmp_path / "runs.db")
    later: SimpleQueue[Future[None]] = SimpleQueue()

    def put_two(_first: object) -> None:  # in the thread that writes, which takes both at once
        for n in (2, 3):
            later.put(store.put_run(served([9.0], trace_id=n)))

    store.put_run(served([9.0], trace_id=1)).add_done_callback(put_two)
    second, third = later.get(timeout=30), later.get(timeout=30)
    with pytest.raises(StoreError, match=r"runs\.db' fails: database is locked"):
        second.result(30)
    other.close()
    assert isinstance(third.exception(30), StoreError), "it was not tried once more"
    assert "locked" in store.view().trouble
    store.put_run(served([9.0], trace_id=4)).result(30)
    assert [run.record.trace_id for run in store.view().runs(RunFilter()).runs] == [f"{4:032x}"]
    assert store.view().trouble == ""
    store.close()


def test_at_the_end_a_file_that_another_process_has_is_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_schema, "BUSY_S", 2.0)
    store, other = locked_store(tmp_path / "runs.db")
    under_way = store.put_spans(served([9.0]).spans * 10_000)  # as many as there may be in one commit
    waiting = store.put_run(served([9.0], trace_id=2))
    assert store.close(patience_s=0.1) is False
    with pytest.raises(StoreError, match="is closed"):
        waiting.result(0)
    assert isinstance(under_way.exception(30), StoreError)
    with pytest.raises(StoreError, match="in use by another process"):
        Store(tmp_path / "runs.db")
    other.execute("COMMIT")
    assert other.execute("SELECT count(*) FROM runs").fetchone() == (0,)
    other.close()


def test_what_cannot_be_kept_fails_alone(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.db")
    good, bad = served([9.0], trace_id=1), served([9.0], trace_id=2)
    odd = [bad.spans[0].__class__("odd", 2, 9, None, 1, 2, {"x": 2**70})]
    futures = [store.put_spans(good.spans), store.put_spans(odd), store.put_run(good)]
    assert futures[0].result(10) is None
    with pytest.raises(UnkeepableError, match=r"cannot be kept in the store .*span 'odd'"):
        futures[1].result(10)
    assert futures[2].result(10) is None
    with pytest.raises(UnkeepableError, match=r"cannot be kept in the store .*too large"):
        store.put_run(replace(good, closed_ns=2**70)).result(10)
    assert store.view().trouble == "", "the store can be written to"
    store.close()


FULL = """
import resource, signal, sys
from support.served_runs import served
from otel_loopeval.server.store.store import Store
from otel_loopeval.server.store.schema import StoreError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = Store(sys.argv[1])
store.put_spans(served([9.0], trace_id=1).spans).result(10)
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
number = 1
try:
    while number < 10_000:
        number += 1
        store.put_spans(served([9.0] * 20, trace_id=number).spans).result(10)
except StoreError as error:
    print(error)
print(bool(store.view().trouble), len({span.trace_id for _, span in store.open_spans()}) == number - 1)
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
store.put_spans(served([9.0], trace_id=20_000).spans).result(10)
print(repr(store.view().trouble), 20_000 in {span.trace_id for _, span in store.open_spans()})
store.close()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX limits")
def test_a_full_disk_is_an_error_and_writing_goes_on_once_there_is_space(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path / "runs.db")],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent)])},
    )
    assert ran.stderr == ""
    first, kept, after = ran.stdout.splitlines()
    assert "runs.db' fails: " in first
    assert "full" in first or "disk I/O error" in first
    assert kept == "True True", "what was acknowledged is there"
    assert after == "'' True"
