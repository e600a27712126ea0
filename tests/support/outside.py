"""The demo's payment provider and scripted model, as a process of their own."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def outside(books: Path) -> Iterator[dict[str, str]]:
    """The environment that leads the README's agent and handler there; what happened is in the SQLite file `books`."""
    command = [sys.executable, "-m", "deedbox_consumers.demo.outside", str(books)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        base = f"http://127.0.0.1:{json.loads(process.stdout.readline())['port']}/v1"
        try:
            yield {"PAY_URL": f"{base}/charges", "OPENAI_BASE_URL": base, "OPENAI_API_KEY": "none"}
        finally:
            process.terminate()
