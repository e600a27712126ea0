"""The Java parts: found by Maven coordinate with jgo, and taken only if their SHA-256 is the one in `jars.lock`.

Two class paths that must stay apart: `kafka` (broker and Connect worker) and `debezium` (the plugin; Connect gives it a
class loader of its own). What was fetched is verified at every start, so a truncated or altered file is fetched again.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from threading import Event
from typing import Final

import httpx2

from deedbox.errors import ExtraMissing, JarRefused
from deedbox_debezium.patience import attempts
from deedbox_debezium.stack.progress import Progress

LOCK: Final = "jars.lock"
TRY_WITHIN: Final = 20.0  # seconds to go on asking for one jar
AT_ONCE: Final = 8  # parallel downloads
PLUGIN: Final = "debezium-connector-postgres"
FOLDERS: Final = {"kafka": Path("kafka"), "debezium": Path("plugins", PLUGIN)}


@dataclass(frozen=True)
class Jar:
    """One locked file: the class path it belongs to, `group:artifact:version`, size in bytes, hex SHA-256."""

    environment: str
    coordinate: str
    size: int
    sha256: str

    @property
    def filename(self) -> str:
        """Its name on disk."""
        _, artifact, version = self.coordinate.split(":")
        return f"{artifact}-{version}.jar"

    def is_good(self, path: Path) -> bool:
        """Whether this file is there, whole and unaltered."""
        if not path.is_file() or path.stat().st_size != self.size:
            return False
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == self.sha256


@cache
def locked() -> tuple[Jar, ...]:
    """All jars of the lock."""
    text = (files("deedbox_debezium") / LOCK).read_text(encoding="utf-8")
    rows = (line.split() for line in text.splitlines() if line and not line.startswith("#"))
    return tuple(Jar(environment, name, int(size), digest) for environment, name, size, digest in rows)


Fetch = Callable[[Jar, Path], None]  # brings a jar to a path; raises HTTPError or OSError


class Jars:
    """The locked jars in a cache folder, which several stacks and versions may share."""

    def __init__(
        self, cache_folder: Path, jars: Sequence[Jar] | None = None, *, giving_up: Event | None = None
    ) -> None:
        self._giving_up = giving_up or Event()
        self.jars: tuple[Jar, ...] = locked() if jars is None else tuple(jars)
        name = hashlib.sha256("\n".join(jar.sha256 for jar in self.jars).encode()).hexdigest()[:12]
        self.cache = cache_folder
        self.folder: Path = cache_folder / f"jars-{name}"

    @property
    def class_path(self) -> str:
        """What `java -cp` takes for broker and Connect worker."""
        return f"{self.folder / FOLDERS['kafka']}/*"

    @property
    def plugin_path(self) -> Path:
        """Connect's `plugin.path`: the folder above the plugin's own."""
        return self.folder / FOLDERS["debezium"].parent

    def path(self, jar: Jar) -> Path:
        """Where this jar lies."""
        return self.folder / FOLDERS[jar.environment] / jar.filename

    def wanting(self) -> list[Jar]:
        """The jars that are not there or not as locked."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            good = pool.map(lambda jar: jar.is_good(self.path(jar)), self.jars)
            return [jar for jar, is_good in zip(self.jars, good, strict=True) if not is_good]

    def fetch(self, progress: Progress) -> None:
        """Make every locked jar, and no other, be there.

        Raises JarRefused if what the repository gives is not what is locked, or cannot be had.
        """
        with self._locked():
            self._clear_strangers()
            wanting = self.wanting()
            if not wanting:
                return
            for learned in self.folder.glob("*.aot"):  # belongs to the very files
                learned.unlink()
            for jar in wanting:
                if self.path(jar).exists():
                    progress.say(f"{jar.filename} is not as locked: it is fetched again")
                    self.path(jar).unlink()
            with (
                tempfile.TemporaryDirectory(dir=self.folder) as staging,
                progress.download("Kafka and Debezium", sum(jar.size for jar in wanting)) as came_in,
                _repository() as fetch,
                ThreadPoolExecutor(AT_ONCE) as pool,
            ):
                try:
                    list(pool.map(lambda jar: self._fetch(jar, Path(staging), fetch, came_in), wanting))
                except BaseException:
                    pool.shutdown(cancel_futures=True)
                    raise

    def _fetch(self, jar: Jar, staging: Path, fetch: Fetch, came_in: Callable[[int], None]) -> None:
        fetched = staging / f"{jar.environment}-{jar.filename}"
        reason = "it could not be fetched"
        for _ in attempts(TRY_WITHIN, first=1.0, longest=8.0):
            if self._giving_up.is_set():
                raise JarRefused(jar=jar.coordinate, reason="fetching was interrupted")
            try:
                fetch(jar, fetched)
            except (httpx2.HTTPError, OSError) as problem:
                reason = f"it could not be fetched ({problem})"
                continue
            if jar.is_good(fetched):
                target = self.path(jar)
                target.parent.mkdir(parents=True, exist_ok=True)
                fetched.replace(target)
                came_in(jar.size)
                return
            with fetched.open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
            reason = f"its SHA-256 is {found} and not {jar.sha256}"
        raise JarRefused(jar=jar.coordinate, reason=reason)

    def _clear_strangers(self) -> None:
        """Remove whatever else lies in the folders: the class path is the folder's content."""
        ours = {self.path(jar) for jar in self.jars}
        for folder in FOLDERS.values():
            for path in (self.folder / folder).glob("*"):
                if path not in ours:
                    path.unlink()
        for left in self.folder.glob("tmp*"):  # of a fetch that was killed
            shutil.rmtree(left, ignore_errors=True)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One fetch at a time: two stacks may share the cache."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.cache / "jars.lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


@contextmanager
def _repository() -> Iterator[Fetch]:
    """How to fetch one jar: from the repositories that jgo's settings name, else from its default.

    One client for all of them: jgo's own download makes a connection and reads the certificates twice for each file,
    which costs more than the bytes.
    """
    try:
        from jgo.config import GlobalSettings  # noqa: PLC0415  only a first start needs it
        from jgo.maven import MavenContext  # noqa: PLC0415
    except ImportError as missing:
        raise ExtraMissing(what="The local stack", extra="deedbox-debezium[local]") from missing
    context = MavenContext(remote_repos=GlobalSettings.load().repositories or None, local_repos=[])
    with httpx2.Client(timeout=30, follow_redirects=True) as client:

        def fetch(jar: Jar, target: Path) -> None:
            group, name, version = jar.coordinate.split(":")
            artifact = context.project(group, name).at_version(version).artifact()
            path = f"{artifact.component.path_prefix.as_posix()}/{artifact.filename}"
            for repository in context.remote_repos.values():
                with client.stream("GET", f"{repository}/{path}") as answer:
                    if answer.status_code == httpx2.codes.NOT_FOUND:
                        continue
                    answer.raise_for_status()
                    with target.open("wb") as file:
                        file.writelines(answer.iter_bytes())
                    return
            raise OSError(f"none of {', '.join(context.remote_repos)} has {path}")

        yield fetch
