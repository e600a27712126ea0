"""The command line in this process: what it wrote and its exit code."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from deedbox.command import main


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON value that it printed."""
        return json.loads(self.out)


class Commands:
    """Runs `deedbox …` against one ledger, on a screen of `columns` (None: into a pipe)."""

    def __init__(self, patch: pytest.MonkeyPatch, capture: pytest.CaptureFixture[str], url: str, schema: str) -> None:
        self._patch = patch
        self._capture = capture
        patch.setenv("DEEDBOX_DATABASE_URL", url)
        patch.setenv("DEEDBOX_SCHEMA", schema)
        self.screen(None)

    def screen(self, columns: int | None) -> None:
        """Give it another width."""
        if columns is None:
            self._patch.delenv("COLUMNS", raising=False)
        else:
            self._patch.setenv("COLUMNS", str(columns))

    def __call__(self, *words: str) -> Ended:
        """Run it."""
        self._capture.readouterr()
        self._patch.setattr("sys.argv", ["deedbox", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        said = self._capture.readouterr()
        return Ended(int(ended.value.code or 0), said.out, said.err)
