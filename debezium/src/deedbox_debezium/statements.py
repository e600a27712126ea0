"""The named statements of this distribution's `.sql` files."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import LiteralString, cast


def statements(name: str) -> dict[str, LiteralString]:
    """Name → statement of `sql/{name}.sql`."""
    text = (files("deedbox_debezium") / "sql" / f"{name}.sql").read_text(encoding="utf-8")
    _, *pieces = re.split(r"^-- name: (\w+)\n", text, flags=re.MULTILINE)
    # our own package data: as trusted as a literal in the source
    return {key: cast("LiteralString", body.strip()) for key, body in zip(pieces[::2], pieces[1::2], strict=True)}
