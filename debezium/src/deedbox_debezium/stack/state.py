"""What a local stack remembers in its folder: ports, passwords, Kafka's cluster id (`stack.json`, kept private)."""

from __future__ import annotations

import base64
import json
import secrets
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path


def _cluster_id() -> str:
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def _password() -> str:
    return secrets.token_urlsafe(24)


@dataclass
class State:
    """Everything about a stack that must survive its processes."""

    ports: dict[str, int] = field(default_factory=dict)
    password: str = field(default_factory=_password)
    connect_password: str = field(default_factory=_password)
    cluster_id: str = field(default_factory=_cluster_id)

    @classmethod
    def load(cls, path: Path) -> State:
        """What `path` remembers, or a new state if there is no such file."""
        try:
            return cls(**json.loads(path.read_text()))
        except FileNotFoundError:
            return cls()

    def save(self, path: Path) -> None:
        """Write it whole or not at all."""
        write_private(path, asdict(self))


def write_private(path: Path, content: Mapping[str, object]) -> None:
    """Write JSON that only its owner may read, in one step (these files hold passwords)."""
    new = path.with_name(path.name + ".new")
    new.unlink(missing_ok=True)
    new.touch(mode=0o600)
    new.write_text(json.dumps(content, indent=1) + "\n")
    new.replace(path)
