"""Where a call stands in its run, written as text.

A key comes from position alone (`run:step:call`), never from the model, so a step that is decided again asks for the
same keys.
"""

from __future__ import annotations

import re

from deedbox.errors import InvalidKey, InvalidRunId, InvalidToolName

RUN_ID = re.compile(r"[A-Za-z0-9._~-]{1,128}")
TOOL_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")  # a topic's last part and, at 63, still a Postgres identifier
_KEY = re.compile(rf"({RUN_ID.pattern}):(0|[1-9][0-9]{{0,9}}):(0|[1-9][0-9]{{0,9}})")


def check_run_id(run_id: object) -> str:
    """Give the run id back, or raise InvalidRunId."""
    if not isinstance(run_id, str) or not RUN_ID.fullmatch(run_id):
        raise InvalidRunId(run_id=run_id)
    return run_id


def check_tool_name(name: str) -> str:
    """Give the tool's name back, or raise InvalidToolName."""
    if not TOOL_NAME.fullmatch(name):
        raise InvalidToolName(name=name)
    return name


def call_key(run_id: str, step: int, call: int) -> str:
    """The key of call number `call` of step number `step`; both count from 0."""
    return f"{run_id}:{step}:{call}"


def split_key(key: str) -> tuple[str, int, int]:
    """Take a key apart into run id, step and call; raises InvalidKey."""
    found = _KEY.fullmatch(key)
    if found is None:
        raise InvalidKey(key=key)
    run_id, step, call = found.groups()
    return run_id, int(step), int(call)


def idempotency_key(box: str, key: str, rekeyed: int = 0) -> str:
    """What the provider is given: the box's id in front keeps two deployments apart at one provider (I6).

    `rekeyed` counts the audited acts by which it got a new key: no call's key ends in ~1.
    """
    return f"{box}:{key}~{rekeyed}" if rekeyed else f"{box}:{key}"
