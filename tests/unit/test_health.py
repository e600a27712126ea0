"""Liveness by progress: parts that get on are alive, parts that are stuck are told from idle ones."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from deedbox.errors import PortTaken
from deedbox_consumers import health
from deedbox_consumers.health import Health, Progress, beat, serve_health

MINUTE = timedelta(minutes=1)


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(health, "now", clock)
    return clock


@pytest.fixture
def progress(clock: Clock) -> Progress:
    return Progress()


@pytest.fixture
def served(progress: Progress) -> Iterator[Health]:
    with serve_health(progress, 0) as served:
        yield served


def asked(served: Health, path: str = "/livez") -> tuple[int, dict[str, Any]]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{served.port}{path}", timeout=30) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as reply:
        with reply:
            return reply.code, json.load(reply) if path.startswith("/livez") else {}


def stuck(progress: Progress) -> set[str]:
    return {name for name, part in progress.parts().items() if part.stuck}


def test_a_part_that_does_not_get_on_is_stuck(progress: Progress, clock: Clock) -> None:
    progress.expect("poll", MINUTE)
    progress.expect("handle", 2 * MINUTE)
    clock.now += 60
    assert stuck(progress) == set()
    clock.now += 1
    assert stuck(progress) == {"poll"}
    progress.note("poll")
    clock.now += 60
    assert stuck(progress) == {"handle"}


def test_a_part_that_has_nothing_to_do_is_not_stuck(progress: Progress, clock: Clock) -> None:
    progress.expect("handle", MINUTE)
    progress.idle("handle")
    clock.now += 86_400
    assert stuck(progress) == set()
    progress.note("handle")
    clock.now += 61
    assert stuck(progress) == {"handle"}


def test_what_nobody_expects_is_not_missed(progress: Progress, clock: Clock) -> None:
    progress.note("sweep")
    clock.now += 86_400
    assert progress.parts() == {}


def test_livez_says_how_old_each_part_is(progress: Progress, clock: Clock, served: Health) -> None:
    progress.expect("poll", MINUTE)
    progress.expect("handle", MINUTE)
    progress.idle("handle")
    clock.now += 7
    parts = {
        "poll": {"age": 7.0, "bound": 60.0, "idle": False},
        "handle": {"age": 7.0, "bound": 60.0, "idle": True},
    }
    assert asked(served) == (200, {"status": "alive", "stuck": [], "parts": parts})
    clock.now += 60
    status, told = asked(served, "/livez?verbose")
    assert (status, told["status"], told["stuck"]) == (503, "stuck", ["poll"])
    assert asked(served, "/")[0] == 404


def test_a_blocked_event_loop_is_seen(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "BEAT", 0.001)
    blocked, go_on, beaten = threading.Event(), threading.Event(), threading.Event()

    class Told(Progress):
        def note(self, part: str) -> None:
            super().note(part)
            beaten.set()

    progress = Told()
    progress.expect("loop", MINUTE)

    async def block() -> None:
        beating = asyncio.create_task(beat(progress))
        await asyncio.sleep(0)
        blocked.set()
        go_on.wait()  # as a handler that is async and is not
        beaten.clear()
        while not beaten.is_set():  # noqa: ASYNC110 - what sets it is the loop's next turn
            await asyncio.sleep(0)
        beating.cancel()

    thread = threading.Thread(target=asyncio.run, args=[block()])
    with serve_health(progress, 0) as served:
        thread.start()
        blocked.wait()
        assert asked(served)[0] == 200
        clock.now += 61
        assert asked(served)[0] == 503
        go_on.set()
        thread.join()
        assert asked(served)[0] == 200


def test_one_who_says_nothing_holds_up_no_answer(served: Health) -> None:
    with socket.create_connection(("127.0.0.1", served.port)):
        assert asked(served)[0] == 200


def test_a_port_that_is_taken_is_named(progress: Progress, served: Health) -> None:
    with pytest.raises(PortTaken, match=f"port {served.port} .*--health-port"):
        serve_health(progress, served.port)
    with pytest.raises(PortTaken):
        serve_health(progress, 65536)


def test_closed_answers_no_more(progress: Progress) -> None:
    served = serve_health(progress, 0)
    served.close()
    with pytest.raises(urllib.error.URLError):
        asked(served)
