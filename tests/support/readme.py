"""The README's own code, to be run as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

README = Path(__file__).resolve().parents[2] / "README.md"
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def files() -> dict[str, str]:
    """Its Python blocks by the file they are for; the second agent is the one without a worker."""
    tools, handlers, inline, deployed = _BLOCK.findall(README.read_text("utf-8"))
    return {"tools.py": tools, "handlers.py": handlers, "agent.py": inline, "deployed.py": deployed}
