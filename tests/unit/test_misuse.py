"""What is given wrongly is named at once, with what to give in its place: before any database is asked."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from deedbox import AsyncDeedbox, Deedbox, Tool, user
from deedbox.errors import (
    InvalidRunId,
    NotAChat,
    NotATool,
    NotMessages,
    NotMigrated,
    ToolTwice,
    WrongDatabaseUrl,
)
from deedbox.migrate import missing
from tests.support.shop import Lookup, Mail, Order, Receipt, charge, lookup

NOWHERE = "postgresql://127.0.0.1:1/none"


@pytest.mark.parametrize("box", [Deedbox, AsyncDeedbox])
@pytest.mark.parametrize("tools", [[print], ["charge"], charge, [Tool]], ids=repr)
def test_what_is_no_tool(box: Any, tools: Any) -> None:
    with pytest.raises(NotATool, match="Tool"):
        box(NOWHERE, tools=tools)


def test_two_tools_of_one_name() -> None:
    other = Tool(charge.name, args=Lookup, result=Order, effect=lookup.effect)
    with pytest.raises(ToolTwice, match="charge_customer"):
        Deedbox(NOWHERE, tools=[charge, charge])
    with pytest.raises(ToolTwice, match="charge_customer"):
        Deedbox(NOWHERE, tools=[charge, other])


def test_two_tools_that_a_model_could_not_tell_apart() -> None:
    titled = Tool("post_letter", args=Mail, result=Receipt, effect=lookup.effect, title=lookup.title)
    with pytest.raises(ToolTwice, match="read_order"):
        Deedbox(NOWHERE, tools=[lookup, titled])


def test_what_is_no_dialect() -> None:
    chat: Any = "openai"
    with pytest.raises(NotAChat, match="openai_chat"):
        Deedbox(NOWHERE, chat=chat)


@pytest.mark.parametrize("messages", ["hi", b"hi", user("hi"), ["hi"], [user("hi"), 5], 5], ids=repr)
def test_what_are_no_messages(messages: Any) -> None:
    with Deedbox(NOWHERE) as box, pytest.raises(NotMessages, match="user"):
        box.run("r", messages=messages)


@pytest.mark.parametrize("run_id", [5, None, b"r", ""], ids=repr)
async def test_what_is_no_run_id(run_id: Any) -> None:
    with Deedbox(NOWHERE) as box, pytest.raises(InvalidRunId):
        box.run(run_id, messages=[user("hi")])
    async with AsyncDeedbox(NOWHERE) as aio:
        with pytest.raises(InvalidRunId):
            await aio.run(run_id, messages=[user("hi")])


@pytest.mark.parametrize("url", ["hello", "postgresql://%zz/x", "postgresql://h:port/x", "postgresql://\udcff/x"])
def test_what_is_no_database_url(url: str) -> None:
    with pytest.raises(WrongDatabaseUrl, match="postgresql://user"):
        Deedbox(url)


@pytest.mark.parametrize("url", ["postgresql:///shop", "postgresql://a:1,b:2/x", "host=/tmp dbname=x", "dbname=x"])
def test_what_libpq_can_read_is_one(url: str) -> None:
    assert Deedbox(url).database_url == url


def test_a_ledger_that_is_behind_names_the_command_for_its_schema() -> None:
    told = missing(None, "shop")
    assert told is not None
    assert str(told).endswith("run `deedbox init --schema shop`.")
    assert str(missing(1, "deedbox")).endswith("run `deedbox init`.")
    again = pickle.loads(pickle.dumps(told))
    assert isinstance(again, NotMigrated)
    assert str(again) == str(told)
