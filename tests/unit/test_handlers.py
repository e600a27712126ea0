"""Handlers: which function performs which tool."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from pydantic import BaseModel

from deedbox import Tool, repeatable
from deedbox.effects import probe
from deedbox.errors import HandlerTaken, NoHandler, NoHandlers, ProbeNotAsked, ProbeTaken
from deedbox_consumers import Attempt, DidNotHappen, Handlers, Happened, Limits, Probed, Worker
from deedbox_consumers.cli.worker import handlers_of

URL = "postgresql://nowhere"


class Args(BaseModel):
    """Do it."""


class Result(BaseModel):
    pass


first = Tool("first", args=Args, result=Result, effect=repeatable)
second = Tool("second", args=Args, result=Result, effect=repeatable)
third = Tool("third", args=Args, result=Result, effect=repeatable)

handlers = Handlers()


@handlers.handle(first)
async def do_first(args: Args, attempt: Attempt) -> Result:
    return Result()


@handlers.handle(second)
def do_second(args: Args, attempt: Attempt) -> Result:
    return Result()


class Third:
    async def __call__(self, args: Args, attempt: Attempt) -> Result:
        return Result()


handlers.handle(third)(Third())


async def test_a_handler_stays_a_plain_function() -> None:
    attempt = Attempt(key="k", call="c", number=1, until=0)
    assert await do_first(Args(), attempt) == do_second(Args(), attempt) == Result()


def test_only_coroutine_functions_run_in_the_loop() -> None:
    assert {name: handler.blocks for name, handler in handlers.by_tool.items()} == {
        "first": False,
        "second": True,
        "third": False,
    }


def test_one_tool_has_one_handler() -> None:
    with pytest.raises(HandlerTaken, match="do_first"):
        handlers.handle(first)(do_first)


def asked() -> Tool[..., Args, Result]:
    return Tool("asked", args=Args, result=Result, effect=probe())


def test_a_probe_is_one_and_stands_beside_its_handler() -> None:
    mine, tool = Handlers(), asked()

    @mine.probe(tool)
    async def find(args: Args, attempt: Attempt) -> Probed[Result]:
        return Happened(Result())

    assert mine.by_tool == {}  # it performs nothing by itself
    mine.handle(tool)(do_second)
    handler = mine.by_tool["asked"]
    assert handler.probe is not None
    assert (handler.blocks, handler.probe.function, handler.probe.blocks) == (True, find, False)
    with pytest.raises(ProbeTaken, match="find"):
        mine.probe(tool)(find)


def test_a_sync_probe_blocks() -> None:
    mine, tool = Handlers(), asked()

    @mine.probe(tool)
    def find(args: Args, attempt: Attempt) -> DidNotHappen:
        return DidNotHappen()

    mine.handle(tool)(do_first)
    handler = mine.by_tool["asked"]
    assert handler.probe is not None
    assert (handler.blocks, handler.probe.blocks) == (False, True)


def test_a_probe_that_nobody_would_ask_is_refused() -> None:
    with pytest.raises(ProbeNotAsked, match="first, whose effect is repeatable"):
        Handlers().probe(first)


def test_limits_are_the_handlers() -> None:
    mine = Handlers()
    mine.handle(first, limits=Limits(concurrency=4))(do_first)
    mine.handle(second)(do_second)
    assert mine.by_tool["first"].limits == Limits(concurrency=4)
    assert mine.by_tool["second"].limits is None


def test_an_attempt_is_marked_once_its_effect_went_out() -> None:
    attempt = Attempt(key="k", call="c", number=1, until=0)
    assert not attempt.marked
    attempt.mark_sent()
    assert attempt.marked


def test_a_worker_performs_what_has_a_handler() -> None:
    assert set(Worker(None, handlers, database_url=URL).tools) == {"first", "second", "third"}
    assert Worker(None, handlers, database_url=URL, tools=["second"]).tools == ("second",)


def test_a_tool_without_a_handler_is_refused_by_name() -> None:
    with pytest.raises(NoHandler, match="charge"):
        Worker(None, handlers, database_url=URL, tools=["charge"])


async def test_the_lifespan_is_entered_once_and_left() -> None:
    said: list[str] = []
    mine = Handlers()
    async with mine.alive() as nothing:
        assert nothing is None

    @mine.lifespan
    async def resources() -> AsyncIterator[str]:
        said.append("open")
        yield "state"
        said.append("closed")

    async with mine.alive() as state:
        assert (state, said) == ("state", ["open"])
    assert said == ["open", "closed"]


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("shop", "MODULE:NAME"),
        ("no_such_shop:handlers", "no module"),
        ("json:handlers", "is not"),
        ("json:dumps", "is not"),
    ],
)
def test_handlers_that_are_not_there_are_named(target: str, says: str) -> None:
    with pytest.raises(NoHandlers, match=says):
        handlers_of(target)
