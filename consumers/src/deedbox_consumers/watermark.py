"""Which offset of a partition may be committed: everything below it is answered for."""

from __future__ import annotations

from collections import deque

from deedbox_consumers.clock import now


class Watermark:
    """The offsets of one partition under one assignment, in the order received.

    Offsets have holes (compaction, transactions), so nothing is ever expected to follow an offset but what was received
    after it. Answers come in any order; the watermark stops at the first offset that is not answered.
    """

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self._received: deque[int] = deque()
        self._since: deque[float] = deque()  # when each of them was received
        self._answered: set[int] = set()
        self._next: int | None = None  # the offset after the last one that was received, or the partition's end
        self.low: int | None = None  # what may be committed, once something was answered
        self._stored: int | None = None

    def receive(self, offset: int) -> None:
        """An offset was received. One that was received before (a seek, a retry of the fetch) changes nothing."""
        if self._next is not None and offset < self._next:
            return
        self._received.append(offset)
        self._since.append(now())
        self._next = offset + 1

    def reach(self, end: int) -> None:
        """Nothing is between what was received and `end`."""
        if self._next is None or end > self._next:
            self._next = end
            self._rise()

    def answer(self, offset: int) -> None:
        """The ledger answers for this offset now."""
        if not self._received or offset < self._received[0]:
            return
        self._answered.add(offset)
        while self._received and self._received[0] in self._answered:
            done = self._received.popleft()
            self._since.popleft()
            self._answered.discard(done)
            self.low = done + 1
        self._rise()

    @property
    def age(self) -> float:
        """For how many seconds the first offset that is not answered has been waiting for that; 0: there is none."""
        return max(0.0, now() - self._since[0]) if self._since else 0.0

    @property
    def open(self) -> int:
        """How many offsets wait for an answer, those behind the first one included."""
        return len(self._received)

    @property
    def through(self) -> int | None:
        """Everything below this offset was received and answered; None: nothing is known of this partition yet."""
        return self._received[0] if self._received else self._next

    def to_commit(self) -> int | None:
        """The offset to commit, if it is another one than the last time."""
        if self.low == self._stored:
            return None
        self._stored = self.low
        return self.low

    def _rise(self) -> None:
        """Behind the last answer, what is no record (the end of a transaction) is done too: nothing lags then."""
        if not self._received and self.low is not None:
            self.low = self._next
