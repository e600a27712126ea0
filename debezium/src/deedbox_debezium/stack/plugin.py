"""Fetch Debezium's locked jars: `python -m deedbox_debezium.stack.plugin FOLDER` (Connect's `plugin.path`)."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from deedbox_debezium.stack.jars import Jars, locked
from deedbox_debezium.stack.progress import Shown


def main() -> None:
    """Fetch, verify, copy."""
    with tempfile.TemporaryDirectory() as cache:
        jars = Jars(Path(cache), [jar for jar in locked() if jar.environment == "debezium"])
        jars.fetch(Shown())
        shutil.copytree(jars.plugin_path, sys.argv[1], dirs_exist_ok=True)


if __name__ == "__main__":
    main()
