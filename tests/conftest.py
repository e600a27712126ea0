"""Fixtures for all tests: the real parts, started once, and a fresh ledger for each test."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from deedbox import Deedbox
from deedbox_debezium.stack import Stack
from tests.support.shop import MONEY, TOOLS, Shop, open_shop

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def local_stack() -> Iterator[Stack]:
    """The stack of the tests, beside the one that people use; it ends with the tests, however they end."""
    home = ROOT / ".deedbox"
    os.environ.setdefault("DEEDBOX_CACHE", str(home / "cache"))
    with _free_folder(home) as folder, Stack(folder, supervised=True) as stack:
        yield stack


@contextlib.contextmanager
def _free_folder(home: Path) -> Iterator[Path]:
    """A folder that no other test session of this checkout uses at this moment."""
    home.mkdir(exist_ok=True)
    for number in itertools.count(1):
        with (home / f"tests-{number}.lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            yield home / f"tests-{number}"
            return


@pytest.fixture(scope="session")
def database_url(local_stack: Stack) -> str:
    """A real PostgreSQL, as its superuser."""
    local_stack.up("postgres")
    return local_stack.database_url


@pytest.fixture(scope="session")
def stack(local_stack: Stack) -> Stack:
    """PostgreSQL, Kafka and Connect with Debezium."""
    local_stack.up()
    return local_stack


@pytest.fixture
def shop(database_url: str) -> Iterator[Shop]:
    """A ledger of its own with the shop's tools, and the SQL of a worker to play with."""
    with open_shop(database_url) as shop:
        yield shop


@pytest.fixture
def box(shop: Shop) -> Iterator[Deedbox]:
    """An agent's box on that ledger."""
    with Deedbox(shop.url, tools=TOOLS, schema=shop.schema) as box:
        yield box


@pytest.fixture
def bank(shop: Shop) -> Iterator[Deedbox]:
    """A box of the tools with the other effects."""
    with Deedbox(shop.url, tools=[*TOOLS, *MONEY], schema=shop.schema) as box:
        yield box


@pytest.fixture
def conn(shop: Shop) -> Iterator[psycopg.Connection]:
    """A connection that is in autocommit mode, its search path on the ledger."""
    with shop.connect() as conn:
        yield conn
