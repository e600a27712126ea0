"""Ports of the local stack: chosen free, below the range from which systems take ports for outgoing connections."""

from __future__ import annotations

import random
import socket
from collections.abc import Container
from typing import Final

LOOPBACK: Final = "127.0.0.1"
RANGE: Final = range(20_000, 32_000)  # Linux hands out 32768 and up, macOS 49152 and up, by themselves


def is_free(port: int) -> bool:
    """Whether a server could listen on this loopback port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def listens(port: int) -> bool:
    """Whether a server takes connections on this loopback port: the cheap question before the real one."""
    try:
        socket.create_connection((LOOPBACK, port), timeout=1).close()
    except OSError:
        return False
    return True


def choose(taken: Container[int] = ()) -> int:
    """A free port that is not in `taken`. Random, so that two stacks starting at once rarely meet."""
    candidates = (random.choice(RANGE) for _ in RANGE)  # noqa: S311  a port is no secret
    return next(port for port in candidates if port not in taken and is_free(port))
