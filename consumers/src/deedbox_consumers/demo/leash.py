"""Run a function as a process that does not outlive who started it.

`python -m deedbox_consumers.demo.leash MODULE:FUNCTION WORDS…`, with a pipe as standard input whose other end only the
starter holds: when it closes, the starter is gone, however it ended, and this process ends at once.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading


def main() -> None:
    """Hold on to the starter, then run the function with the words as its command line."""
    target, *words = sys.argv[1:]
    threading.Thread(target=_watch, name="leash", daemon=True).start()
    module, _, function = target.partition(":")
    sys.argv = [function, *words]
    getattr(importlib.import_module(module), function)()


def _watch() -> None:
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
