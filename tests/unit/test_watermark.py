"""The offset that may be committed, over received offsets with holes."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from deedbox_consumers.watermark import Watermark


def received(*offsets: int) -> Watermark:
    watermark = Watermark(1)
    for offset in offsets:
        watermark.receive(offset)
    return watermark


def test_stops_at_the_first_that_is_not_answered() -> None:  # I5
    watermark = received(0, 1, 2)
    watermark.answer(1)
    watermark.answer(2)
    assert watermark.to_commit() is None
    watermark.answer(0)
    assert watermark.to_commit() == 3


def test_holes_are_no_gaps() -> None:
    """spring-projects/spring-kafka#4258: offsets were 0, 2, 4, and the consumer waited for 1."""
    watermark = received(0, 2, 7)  # transaction markers, compaction
    for offset in (7, 2, 0):
        watermark.answer(offset)
    assert watermark.to_commit() == 8


def test_is_committed_once() -> None:
    watermark = received(4)
    watermark.answer(4)
    assert watermark.to_commit() == 5
    assert watermark.to_commit() is None


def test_what_was_received_before_changes_nothing() -> None:
    watermark = received(0, 1)
    watermark.answer(0)
    watermark.receive(0)
    watermark.receive(1)
    assert watermark.open == 1
    watermark.answer(1)
    assert watermark.to_commit() == 2


def test_an_answer_to_nothing_is_forgotten() -> None:
    watermark = received(5)
    watermark.answer(3)
    watermark.answer(5)
    watermark.answer(5)
    assert watermark.to_commit() == 6
    assert watermark.open == 0


def test_knows_how_far_it_is_through() -> None:
    watermark = Watermark(1)
    assert watermark.through is None
    watermark.reach(10)  # the partition's end, told by the broker when there is nothing to read
    assert watermark.through == 10
    watermark.receive(12)
    assert watermark.through == 12
    watermark.answer(12)
    assert watermark.through == 13
    watermark.reach(14)
    assert watermark.through == 14


@given(st.sets(st.integers(0, 60), min_size=1), st.randoms(use_true_random=False))
def test_never_passes_an_open_offset_and_ends_behind_the_last(offsets: set[int], random: Random) -> None:  # I5
    """faust-streaming/faust#312: the commit jumped over an offset that was not finished."""
    in_order = sorted(offsets)
    watermark = received(*in_order)
    left = list(in_order)
    random.shuffle(left)
    low = 0
    while left:
        watermark.answer(left.pop())
        low = watermark.to_commit() or low
        assert all(offset >= low for offset in left)
        assert watermark.open == sum(offset >= min(left, default=61) for offset in in_order)
    assert low == in_order[-1] + 1
