"""What the dialects have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from pydantic import BaseModel

from deedbox.errors import UnreadableReply, WrongAnswers
from deedbox.tool import Tool

Json: TypeAlias = dict[str, Any]

UNSAID = "The call failed and gave no reason."


@dataclass(frozen=True)
class Asked:
    """A call as a reply asks for it; `id` is the provider's and only labels the answer."""

    id: str
    name: str
    arguments: str | Json


@dataclass(frozen=True)
class Answer:
    """What a model is told of one call."""

    text: str
    error: bool = False

    @property
    def words(self) -> str:
        """The text, and never nothing for an error: providers refuse an empty one."""
        return self.text if self.text.strip() or not self.error else UNSAID


@dataclass(frozen=True)
class Chat:
    """One dialect as pure functions over JSON."""

    name: str
    tools: Callable[[Iterable[Tool[..., Any, Any]]], list[Json]]
    calls: Callable[[Json], list[Asked]]
    said: Callable[[Json], list[Json]]
    answers: Callable[[Json, Sequence[Answer]], list[Json]]
    text: Callable[[Json], str]
    news: Callable[[str], Json]


def user(text: str) -> Json:
    """A message from a person, the same in every dialect."""
    return {"role": "user", "content": text}


def plain(reply: object) -> Json:
    """A client's reply as JSON, with what it left unset left out; raises TypeError."""
    if isinstance(reply, BaseModel):
        return reply.model_dump(mode="json", exclude_unset=True)
    if isinstance(reply, Mapping):
        return dict(reply)
    raise TypeError(f"a reply is the client's object (pydantic) or its JSON as a mapping, not {type(reply).__name__}")


def paired(asked: Sequence[Asked], answers: Sequence[Answer]) -> list[tuple[Asked, Answer]]:
    """Each call with its answer; raises WrongAnswers."""
    if len(asked) != len(answers):
        raise WrongAnswers(asked=len(asked), given=len(answers))
    return list(zip(asked, answers, strict=True))


def without(value: Json, key: str) -> Json:
    """The object less one key: what a client's parse helper adds, its provider refuses to be sent."""
    return {name: part for name, part in value.items() if name != key} if key in value else value


def listed(dialect: str, reply: Json, key: str) -> list[Json]:
    """The list of objects under a key; raises UnreadableReply."""
    found = reply.get(key)
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise UnreadableReply(
            dialect=dialect, why=f"it has no list {key!r}, but {', '.join(map(str, reply)) or 'nothing'}"
        )
    return found
