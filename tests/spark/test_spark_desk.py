"""Open traces of a stream: when they close, and what is remembered."""

import pytest

pytest.importorskip("msgspec", reason="the extra [spark] is not installed")

from otel_loopeval.spark.desk import Closed, Desk, Patience
from otel_loopeval.spark.packing import Pack

ONE, TWO, THREE = (number.to_bytes(16, "big") for number in (1, 2, 3))
PATIENCE = Patience(grace_s=10, idle_s=60, max_age_s=100, remember_s=600)


def pack(
    trace_id: bytes = ONE,
    payload: bytes = b"x",
    *,
    rooted: bool = False,
    telling: bool = True,
    spans: int = 1,
) -> Pack:
    return Pack(trace_id, telling, rooted, spans, payload)


def closed(desk: Desk, now_ms: int) -> list[tuple[bytes, list[bytes]]]:
    return [(one.trace_id, one.payloads) for one in desk.close(now_ms)]


def test_a_trace_with_its_root_closes_after_the_grace() -> None:
    desk = Desk(PATIENCE, 100)
    desk.add(pack(payload=b"a"), 1000)
    assert desk.next_ms == 61_000
    desk.add(pack(payload=b"b", rooted=True), 2000)
    assert desk.next_ms == 12_000
    assert closed(desk, 11_999) == []
    assert closed(desk, 12_000) == [(ONE, [b"a", b"b"])]


def test_news_extends_the_grace_up_to_the_greatest_age() -> None:
    desk = Desk(PATIENCE, 100)
    desk.add(pack(rooted=True), 0)
    for at in (9_000, 18_000, 95_000):
        desk.add(pack(), at)
    assert desk.next_ms == 100_000
    assert closed(desk, 99_999) == []
    assert closed(desk, 100_000) == [(ONE, [b"x"] * 4)]


def test_a_trace_without_its_root_is_given_up_when_idle() -> None:
    desk = Desk(PATIENCE, 100)
    desk.add(pack(), 0)
    assert closed(desk, 59_999) == []
    assert [one.cut for one in desk.close(60_000)] == [False]


def test_what_comes_late_is_dropped_until_the_trace_is_forgotten() -> None:
    desk = Desk(PATIENCE, 100)
    desk.add(pack(rooted=True), 0)
    assert len(closed(desk, 10_000)) == 1
    desk.add(pack(), 20_000)
    assert (desk.late, closed(desk, 609_999), desk.next_ms) == (1, [], 610_000)
    assert (closed(desk, 610_000), desk.next_ms) == ([], None)
    desk.add(pack(), 620_000)
    assert desk.next_ms == 680_000


def test_a_trace_that_tells_of_no_agent_is_not_given_out_but_remembered() -> None:
    desk = Desk(PATIENCE, 100)
    desk.add(pack(rooted=True, telling=False), 0)
    assert closed(desk, 10_000) == []
    desk.add(pack(), 11_000)
    assert desk.late == 1


def test_one_telling_pack_makes_the_trace_telling() -> None:
    desk = Desk(PATIENCE, 100)
    desk.add(pack(telling=True), 0)
    desk.add(pack(telling=False, rooted=True, payload=b"y"), 0)
    assert closed(desk, 10_000) == [(ONE, [b"x", b"y"])]


def test_traces_close_in_the_order_of_their_time() -> None:
    desk = Desk(PATIENCE, 100)
    desk.add(pack(TWO, rooted=True), 2000)
    desk.add(pack(ONE, rooted=True), 1000)
    assert [trace_id for trace_id, _ in closed(desk, 20_000)] == [ONE, TWO]


def test_a_full_bucket_closes_the_next_ones_and_says_what_is_cut() -> None:
    desk = Desk(Patience(max_bytes=25), 100)
    desk.add(pack(ONE, b"1" * 10, rooted=True), 0)
    desk.add(pack(TWO, b"2" * 10), 1)
    assert list(desk.close(2)) == []
    desk.add(pack(THREE, b"3" * 20), 3)
    assert list(desk.close(3)) == [Closed(ONE, [b"1" * 10], cut=False), Closed(TWO, [b"2" * 10], cut=True)]
    assert list(desk.close(4)) == []


def test_a_large_trace_holds_no_more_than_it_may_and_one_pack() -> None:
    desk = Desk(PATIENCE, 5)
    for number in range(10):
        desk.add(pack(payload=bytes([number]), spans=2, rooted=True), 0)
    ((_, payloads),) = closed(desk, 10_000)
    assert payloads == [b"\x00", b"\x01", b"\x02"]


def test_a_desk_goes_on_as_it_was_stored() -> None:
    desk = Desk(PATIENCE, 100)
    desk.add(pack(ONE, rooted=True), 0)
    desk.add(pack(TWO, b"two"), 5000)
    assert len(closed(desk, 10_000)) == 1
    again = Desk(PATIENCE, 100, desk.store())
    again.add(pack(ONE), 11_000)
    assert again.late == 1
    assert again.next_ms == 65_000
    assert closed(again, 65_000) == [(TWO, [b"two"])]


def test_new_traces_do_not_share_their_packs() -> None:
    desk = Desk(PATIENCE, 100)
    desk.add(pack(ONE, b"1", rooted=True), 0)
    desk.add(pack(TWO, b"2", rooted=True), 0)
    assert closed(desk, 10_000) == [(ONE, [b"1"]), (TWO, [b"2"])]


def test_state_of_another_version_is_refused() -> None:
    with pytest.raises(ValueError, match="state of version 99, expected 2: use a new checkpoint"):
        Desk(PATIENCE, 100, b"\x93\x63\x80\x80")


@pytest.mark.parametrize("name", ["grace_s", "idle_s", "max_age_s", "remember_s"])
@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_patience_is_a_number_of_seconds(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{name} must be a finite number from 0, got {value}"):
        Patience(**{name: value})  # type: ignore[reportArgumentType]  # none of them is the whole number


def test_a_bucket_holds_something() -> None:
    with pytest.raises(ValueError, match="max_bytes must be at least 1, got 0"):
        Patience(max_bytes=0)
