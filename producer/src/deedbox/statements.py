"""Named SQL statements, read from `.sql` files: each has a name, a sentence, and its text."""

from __future__ import annotations

import re
from importlib import resources
from types import MappingProxyType
from typing import TYPE_CHECKING, LiteralString, cast

from psycopg import sql

if TYPE_CHECKING:
    from collections.abc import Mapping

_HEADER = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


class Statements:
    """The statements of one package file, bound to a schema.

    A file holds `-- name: claim`, comment lines, then the statement, in which `{schema}` stands for the ledger's
    schema. `statements["claim"]` is ready for `execute`. A name that is not there is a KeyError: a programming mistake.
    """

    def __init__(self, package: str, file: str, schema: str) -> None:
        self.schema: str = schema
        self._texts = {name: text.format(schema=sql.Identifier(schema)) for name, text in _read(package, file).items()}

    def __getitem__(self, name: str) -> sql.Composed:
        return self._texts[name]


_cache: dict[tuple[str, str], Mapping[str, sql.SQL]] = {}


def _read(package: str, file: str) -> Mapping[str, sql.SQL]:
    if (package, file) not in _cache:
        text = resources.files(package).joinpath("sql", file).read_text("utf-8")
        _, *parts = _HEADER.split(text)
        # The package's own files: as literal as if they stood here.
        found = {
            name: sql.SQL(cast("LiteralString", body.strip()))
            for name, body in zip(parts[::2], parts[1::2], strict=True)
        }
        _cache[package, file] = MappingProxyType(found)
    return _cache[package, file]
