"""The roots of all errors: the docstring of a class is its message."""

from __future__ import annotations

import inspect


class DeedboxError(Exception):
    """{detail}"""

    def __init__(self, **facts: object) -> None:
        self.facts = facts
        self.__dict__.update(facts)
        template = " ".join((inspect.getdoc(type(self)) or "{detail}").split())
        super().__init__(template.format(**facts))

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.facts)


def _rebuild(kind: type[DeedboxError], facts: dict[str, object]) -> DeedboxError:
    return kind(**facts)


class BadInput(DeedboxError):
    """{detail}"""


class NotReady(DeedboxError):
    """{detail}"""


class CommitRefused(DeedboxError):
    """{detail}"""


class HandlerVerdict(DeedboxError):
    """{detail}"""
