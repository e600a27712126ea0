"""What the scripted model decides: the same for the same seed, run and turn, whoever asks and however often."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from deedbox import Call, Tool
from tests.chaos import tools


@dataclass(frozen=True)
class Plan:
    """`turns` decisions of a run, each with 1 to `width` calls of the tools; then a last word."""

    seed: int
    names: tuple[str, ...]
    turns: int = 2
    width: int = 3

    @property
    def tools(self) -> list[Tool[..., Any, Any]]:
        """The tools that it decides on."""
        return [tools.family_of(name).tool(name.removeprefix(tools.family_of(name).name)) for name in self.names]

    def decide(self, run: str, turn: int, known: Sequence[Tool[..., Any, Any]]) -> list[Call[Any, Any]]:
        """The calls of the turn, which is numbered from 1; none: the run is over."""
        if turn > self.turns:
            return []
        chance = random.Random(f"{self.seed}:{run}:{turn}")
        chosen = chance.choices(known, k=chance.randint(1, self.width))
        return [tools.call(tool, f"{run}:{turn}:{at}") for at, tool in enumerate(chosen)]
