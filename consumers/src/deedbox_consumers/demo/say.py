"""How the demo's processes report: one JSON object a line on standard output, with the moment it happened."""

from __future__ import annotations

import json
import sys
import threading
import time

_lock = threading.Lock()


def say(what: str, order: str) -> None:
    """Report that `what` has happened to an order just now."""
    with _lock:
        sys.stdout.write(json.dumps({"what": what, "order": order, "at": time.time()}) + "\n")
        sys.stdout.flush()
