"""Middleware sees every performing and changes nothing of what became of it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from pydantic import BaseModel

from deedbox import Tool, repeatable
from deedbox.errors import WrongMiddleware
from deedbox_consumers import Attempt, Handlers, Middleware, Perform, Refusal, RetryLater


class Args(BaseModel):
    """Do it."""


class Result(BaseModel):
    text: str = "done"


ARGS = Args()
ATTEMPT = Attempt(key="box:run:1:0", call="run:1:0", tool="do_it", number=1, until=0)


class Observer(Exception):
    """What an observer fails with."""


def around(*middleware: Middleware, perform: Perform) -> Callable[[], Awaitable[Any]]:
    handlers = Handlers(middleware=middleware)
    tool = Tool("do_it", args=Args, result=Result, effect=repeatable)
    handlers.handle(tool)(lambda args, attempt: Result())
    whole = handlers.by_tool["do_it"].around(perform)
    return lambda: whole(ARGS, ATTEMPT)


class Provider:
    """A perform that counts, and ends as it is told."""

    def __init__(self, problem: BaseException | None = None) -> None:
        self.calls = 0
        self.result = Result()
        self.problem = problem

    async def __call__(self, args: Any, attempt: Attempt) -> Any:
        assert (args, attempt) == (ARGS, ATTEMPT)
        self.calls += 1
        if self.problem is not None:
            raise self.problem
        return self.result


async def passes(args: Any, attempt: Attempt, perform: Perform) -> Any:
    return await perform(args, attempt)


async def fails_before(args: Any, attempt: Attempt, perform: Perform) -> Any:
    raise Observer


async def fails_after(args: Any, attempt: Attempt, perform: Perform) -> Any:
    try:
        return await perform(args, attempt)
    finally:
        raise Observer


async def repeats(args: Any, attempt: Attempt, perform: Perform) -> Any:
    with contextlib.suppress(RuntimeError):
        await perform(args, attempt)
    return await perform(args, attempt)


async def swallows(args: Any, attempt: Attempt, perform: Perform) -> Any:
    try:
        return await perform(args, attempt)
    except ConnectionError:
        return Result(text="all is well")


async def test_the_first_of_the_list_is_outermost() -> None:
    said: list[str] = []

    def named(name: str) -> Middleware:
        async def one(args: Any, attempt: Attempt, perform: Perform) -> Any:
            said.append(f"{name} {attempt.tool}")
            result = await perform(args, attempt)
            said.append(f"/{name}")
            return result

        return one

    provider = Provider()
    assert await around(named("a"), named("b"), perform=provider)() is provider.result
    assert said == ["a do_it", "b do_it", "/b", "/a"]


async def test_without_middleware_nothing_is_in_between() -> None:
    provider = Provider()
    assert Handlers().by_tool == {}
    assert await around(perform=provider)() is provider.result


async def test_what_fails_before_performing_passes_and_nothing_was_sent() -> None:
    provider = Provider()
    with pytest.raises(Observer):
        await around(passes, fails_before, passes, perform=provider)()
    assert provider.calls == 0


async def test_an_observer_that_fails_afterwards_loses_no_result_and_fires_nothing_again(  # I8
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Source: a hook raised after the tool had completed, and the whole batch ran again."""
    provider = Provider()
    with caplog.at_level(logging.ERROR, "deedbox.worker"):
        assert await around(fails_after, passes, fails_after, perform=provider)() is provider.result
    assert provider.calls == 1
    assert [record.exc_info is not None for record in caplog.records] == [True, True]
    assert "fails_after" in caplog.text


@pytest.mark.parametrize("verdict", [Refusal("card_declined", "no funds"), RetryLater(1), TimeoutError(), ValueError()])
async def test_an_observer_that_fails_afterwards_loses_no_exception(verdict: Exception) -> None:  # I16
    provider = Provider(verdict)
    with pytest.raises(type(verdict)) as raised:
        await around(passes, fails_after, perform=provider)()
    assert raised.value is verdict
    assert verdict.__context__ is None  # what the observer met says nothing of the call


async def test_only_a_verdict_takes_an_exceptions_place() -> None:
    async def translates(args: Any, attempt: Attempt, perform: Perform) -> Any:
        try:
            return await perform(args, attempt)
        except ValueError as problem:
            raise Refusal("odd", str(problem)) from problem

    with pytest.raises(Refusal, match="odd"):
        await around(fails_after, translates, perform=Provider(ValueError("no")))()


async def test_a_verdict_does_not_take_back_what_was_returned() -> None:
    async def has_second_thoughts(args: Any, attempt: Attempt, perform: Perform) -> Any:
        await perform(args, attempt)
        raise Refusal("too_late", "it happened")

    provider = Provider()
    assert await around(has_second_thoughts, perform=provider)() is provider.result


async def test_an_exception_is_not_swallowed() -> None:  # I16
    with pytest.raises(ConnectionResetError):
        await around(swallows, perform=Provider(ConnectionResetError()))()


async def test_a_result_of_the_tools_kind_may_take_the_results_place() -> None:
    async def redacts(args: Any, attempt: Attempt, perform: Perform) -> Any:
        result = await perform(args, attempt)
        return result.model_copy(update={"text": "***"})

    assert (await around(redacts, perform=Provider())()).text == "***"


async def test_a_forgotten_return_loses_no_result(caplog: pytest.LogCaptureFixture) -> None:
    async def forgets(args: Any, attempt: Attempt, perform: Perform) -> Any:
        await perform(args, attempt)

    provider = Provider()
    assert await around(forgets, perform=provider)() is provider.result
    assert "forgets gave back a NoneType" in caplog.text


@pytest.mark.parametrize("problem", [None, RuntimeError()])
async def test_nothing_is_performed_twice_in_one_attempt(problem: Exception | None) -> None:
    provider = Provider(problem)
    whole = around(repeats, perform=provider)
    if problem is None:
        assert await whole() is provider.result
    else:
        with pytest.raises(RuntimeError):
            await whole()
    assert provider.calls == 1


async def test_nothing_but_the_decided_call_is_performed() -> None:
    async def swaps(args: Any, attempt: Attempt, perform: Perform) -> Any:
        return await perform(Args(), attempt)

    provider = Provider()
    with pytest.raises(WrongMiddleware, match=r"swaps of do_it performed something else"):
        await around(swaps, perform=provider)()
    assert provider.calls == 0


async def test_nothing_is_done_without_being_performed() -> None:
    async def pretends(args: Any, attempt: Attempt, perform: Perform) -> Any:
        return Result()

    with pytest.raises(WrongMiddleware, match="did not perform"):
        await around(pretends, perform=Provider())()


async def test_what_ends_before_its_call_is_found_out() -> None:
    background: list[asyncio.Future[Any]] = []
    answered = asyncio.Event()

    async def provider(args: Any, attempt: Attempt) -> Any:
        await answered.wait()
        return Result()

    async def runs_ahead(args: Any, attempt: Attempt, perform: Perform) -> Any:
        background.append(asyncio.ensure_future(perform(args, attempt)))
        await asyncio.sleep(0)

    with pytest.raises(WrongMiddleware, match="ended before"):
        await around(runs_ahead, perform=provider)()
    answered.set()
    assert await background[0] == Result()


async def test_a_middleware_that_hangs_afterwards_loses_no_result_at_the_deadline() -> None:
    performed = asyncio.Event()

    async def hangs(args: Any, attempt: Attempt, perform: Perform) -> Any:
        await perform(args, attempt)
        performed.set()
        await asyncio.Event().wait()

    task = asyncio.ensure_future(around(passes, hangs, perform=Provider())())
    await performed.wait()
    task.cancel()
    assert await task == Result()


async def test_a_cancelled_handler_is_cancelled_whatever_a_middleware_makes_of_it() -> None:
    begun = asyncio.Event()

    async def provider(args: Any, attempt: Attempt) -> Any:
        begun.set()
        await asyncio.Event().wait()

    async def puts_off(args: Any, attempt: Attempt, perform: Perform) -> Any:
        try:
            return await perform(args, attempt)
        except asyncio.CancelledError:
            raise RetryLater(1) from None

    task = asyncio.ensure_future(around(puts_off, perform=provider)())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_a_middleware_is_async() -> None:
    def timing(args: Any, attempt: Attempt, perform: Perform) -> Any:
        return perform(args, attempt)

    with pytest.raises(WrongMiddleware, match="timing of these handlers is not async"):
        Handlers(middleware=[timing])
