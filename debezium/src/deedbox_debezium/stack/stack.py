"""The local stack: the real parts in one folder, without Docker or system packages."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Lock
from types import TracebackType
from typing import Final, Literal, Protocol, Self, get_args

from deedbox.errors import StackFailed
from deedbox_debezium.stack.connect import Connect
from deedbox_debezium.stack.jars import Jars
from deedbox_debezium.stack.kafka import Kafka
from deedbox_debezium.stack.ports import LOOPBACK, choose, is_free
from deedbox_debezium.stack.postgres import Postgres
from deedbox_debezium.stack.process import LOOK_EVERY, Part
from deedbox_debezium.stack.progress import Progress, Silent
from deedbox_debezium.stack.state import State, write_private

PartName = Literal["postgres", "kafka", "connect"]
NAMES: Final[tuple[PartName, ...]] = get_args(PartName)
NEEDS: Final[dict[PartName, tuple[PartName, ...]]] = {"postgres": (), "kafka": (), "connect": ("postgres", "kafka")}
PORTS: Final[dict[PartName, tuple[str, ...]]] = {
    "postgres": ("postgres",),
    "kafka": ("kafka", "controller"),
    "connect": ("connect",),
}
ANSWER_WITHIN: Final = 240.0  # seconds; a cold JVM takes 4 on an idle machine and 60 on a busy one
STOP_WITHIN: Final = 15.0  # seconds until a part that was asked to end is killed
LEARN_WITHIN: Final = 300.0  # seconds for a training run to write its file: 5 on an idle machine, 60 on a busy one
TRIES: Final = 3  # a port can be lost between the look and the start; children of a killed server may hold its memory


class Service(Protocol):
    """One part as the stack drives it."""

    @property
    def name(self) -> PartName:
        """Its name."""
        ...

    @property
    def part(self) -> Part:
        """How to find and stop its process."""
        ...

    @property
    def trained(self) -> bool:
        """Whether it has had its training run."""
        ...

    def start(self, *, supervised: bool, training: bool = False) -> None:
        """Start its process, with whatever that needs on disk."""
        ...

    def learn(self) -> None:
        """Keep what a training run that has ended has left."""
        ...

    def answers(self) -> bool:
        """Whether the service itself answers now."""
        ...

    def settle(self) -> None:
        """Once it answers: what must be there before it is called up."""
        ...

    def remove(self) -> None:
        """Delete its data."""
        ...


class Stack:
    """PostgreSQL, Kafka and Kafka Connect with Debezium, all on loopback, all that they leave in `folder`.

    With `supervised=True` the parts that it starts end with this process, however it ends; else only `down` ends them.
    Ports are chosen free at the first start, remembered, and changed if somebody else has taken one meanwhile.
    """

    def __init__(
        self, folder: Path = Path(".deedbox"), *, supervised: bool = False, progress: Progress | None = None
    ) -> None:
        self.folder: Path = folder.resolve()
        self.supervised = supervised
        self.progress: Progress = progress or Silent()
        self._state: State | None = None
        self._giving_up = Event()
        self._mine: set[PartName] = set()  # what this object has started; the rest was there before and stays
        self._choosing = Lock()  # PostgreSQL and Kafka are started beside each other

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.supervised:
            with self._locked():
                self._stop([service for service in self._services() if service.name in self._mine])

    @property
    def state(self) -> State:
        """What the folder remembers."""
        if self._state is None:
            self._state = State.load(self._state_file)
        return self._state

    @property
    def database_url(self) -> str:
        """URL of the stack's database as its superuser, password included."""
        return self._postgres.url()

    @property
    def kafka(self) -> str:
        """Bootstrap address of the broker."""
        return f"{LOOPBACK}:{self.state.ports['kafka']}"

    @property
    def connect_url(self) -> str:
        """Base URL of Connect's REST interface."""
        return f"http://{LOOPBACK}:{self.state.ports['connect']}"

    @property
    def connect_password(self) -> str:
        """What the connector logs in with: `deedbox init --roles` gives it to the role `{prefix}_connect`."""
        return self.state.connect_password

    def up(self, *parts: PartName) -> None:
        """Start `parts` (all if none is named) and what they need; wait until each answers. What runs is left alone.

        Raises StackFailed if a part ends or does not answer in time. Whatever this call has started is then stopped
        again, also when it is interrupted.
        """
        self._up({need for part in parts or NAMES for need in (part, *NEEDS[part])})

    def start(self, part: PartName) -> None:
        """Start this one part again, and nothing that it needs. Raises as `up` does."""
        self._up({part})

    def down(self) -> list[str]:
        """Stop whatever runs, last started first; gives the names of what was stopped."""
        with self._locked():
            return self._stop(self._services())

    def kill(self, part: PartName) -> None:
        """SIGKILL this part with all its processes and wait until they are gone, as a crash would."""
        self._service(part).part.kill()

    def status(self) -> dict[str, dict[str, object]]:
        """For each part: whether it runs, whether it answers, its process id and its address."""
        return {service.name: self._status(service) for service in self._services()}

    def logs(self, part: PartName) -> Path:
        """The file with this part's output."""
        return self.folder / "logs" / f"{part}.log"

    def reset(self) -> None:
        """Stop everything and delete all data; ports, passwords and downloads are kept."""
        with self._locked():
            self._stop(self._services())
            for service in self._services():
                service.remove()

    def erase(self) -> None:
        """Stop everything and delete the folder with all that is in it."""
        self.reset()
        shutil.rmtree(self.folder)

    # ---- how

    @property
    def _state_file(self) -> Path:
        return self.folder / "stack.json"

    @property
    def _postgres(self) -> Postgres:
        return Postgres(self.folder, self.state, self.progress.say)

    def _services(self) -> list[Service]:
        """All parts in the order in which they are started."""
        cache = Path(os.environ.get("DEEDBOX_CACHE") or self.folder / "cache").resolve()
        jars = Jars(cache, giving_up=self._giving_up)
        kafka = Kafka(self.folder, self.state, jars, self.progress)
        connect = Connect(self.folder, self.state, jars, self.progress)
        return [self._postgres, kafka, connect]

    def _service(self, name: PartName) -> Service:
        return next(service for service in self._services() if service.name == name)

    def _up(self, wanted: set[PartName]) -> None:
        with self._locked():
            services = [service for service in self._services() if service.name in wanted]
            for service in services:
                self._take_ports(service)
            started: list[Service] = []
            self._giving_up.clear()
            try:
                self._in_parallel(services, started)
            except BaseException:
                self._stop(started)
                raise
            self._write_settings()

    def _in_parallel(self, services: Sequence[Service], started: list[Service]) -> None:
        """PostgreSQL beside Kafka and, when that answers, Connect."""
        chains = [[service for service in services if (service.name == "postgres") is first] for first in (True, False)]

        def raise_chain(chain: list[Service]) -> None:
            for service in chain:
                self._bring_up(service, started)

        with ThreadPoolExecutor(len(chains)) as pool:
            try:
                for done in [pool.submit(raise_chain, chain) for chain in chains]:
                    done.result()
            except BaseException:
                self._giving_up.set()  # the other thread ends, too
                raise

    def _bring_up(self, service: Service, started: list[Service]) -> None:
        for left in reversed(range(TRIES)):
            began = time.monotonic()
            fresh = self._take_ports(service)
            if fresh:
                self._turn_log(service.name)
                started.append(service)
                self._mine.add(service.name)
                if not service.trained:
                    self._train(service)
                service.start(supervised=self.supervised)
            if self._await(service):
                service.settle()
                if fresh:
                    port = self.state.ports[service.name]
                    took = time.monotonic() - began
                    self.progress.say(f"{service.name} answers on {LOOPBACK}:{port} after {took:.1f} s")
                return
            if not left:
                log = self.logs(service.name)
                raise StackFailed(part=service.name, reason=f"it ended with: {_last_words(log)}", log=log)

    def _train(self, service: Service) -> None:
        """Start it, and when it answers end it and let it write down what it learned."""
        service.start(supervised=self.supervised, training=True)
        if self._await(service):
            self.progress.say(f"{service.name} was started for the first time: the next starts will be quick")
            service.part.stop(LEARN_WITHIN)
            service.learn()

    def _await(self, service: Service) -> bool:
        """Ask until it answers (True) or its process is gone (False)."""
        deadline = time.monotonic() + ANSWER_WITHIN
        while not service.answers():
            if service.part.find() is None:
                return False
            if self._giving_up.is_set() or time.monotonic() > deadline:
                reason = f"it runs but does not answer after {ANSWER_WITHIN:.0f} s."
                raise StackFailed(part=service.name, reason=reason, log=self.logs(service.name))
            time.sleep(LOOK_EVERY)
        return True

    def _take_ports(self, service: Service) -> bool:
        """Make sure that a part that does not run has free ports; False if it runs."""
        if service.part.find() is not None:
            return False
        with self._choosing:
            ports = self.state.ports
            for name in PORTS[service.name]:
                if name in ports and not is_free(ports[name]):
                    self.progress.say(f"port {ports[name]} of {name} is taken by another program: another is chosen")
                    del ports[name]
                    self._service("connect").part.stop(STOP_WITHIN)  # it was told the old one
                if name not in ports:
                    ports[name] = choose(set(ports.values()))
            self.state.save(self._state_file)
        return True

    def _turn_log(self, part: PartName) -> None:
        log = self.logs(part)
        if log.exists():
            log.replace(log.with_suffix(".log.1"))

    def _stop(self, services: Sequence[Service]) -> list[str]:
        return [service.name for service in reversed(services) if service.part.stop(STOP_WITHIN)]

    def _status(self, service: Service) -> dict[str, object]:
        pid = service.part.find()
        port = self.state.ports.get(service.name)
        answers = pid is not None and service.answers()
        return {"running": pid is not None, "answers": answers, "pid": pid, "address": port and f"{LOOPBACK}:{port}"}

    def _write_settings(self) -> None:
        """Tell every command that runs beside this folder where the parts are; what others put there is kept."""
        path = self.folder / "settings.json"
        settings = json.loads(path.read_text()) if path.exists() else {}
        known = {"database_url": "postgres", "kafka": "kafka", "connect_url": "connect"}
        settings |= {name: getattr(self, name) for name, part in known.items() if part in self.state.ports}
        settings["connect_password"] = self.connect_password
        write_private(path, settings)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One command at a time works on this folder; the second waits for the first."""
        for folder in (self.folder, self.folder / "logs", self.folder / "run"):
            folder.mkdir(parents=True, exist_ok=True)
        if os.geteuid() == 0:
            self.folder.chmod(0o755)  # PostgreSQL's account has to pass
        with (self.folder / "stack.lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            self._state = State.load(self._state_file)
            yield


def _last_words(log: Path) -> str:
    try:
        lines = log.read_text(errors="replace").strip().splitlines()
    except FileNotFoundError:
        return "nothing."
    return " / ".join(lines[-3:]) + "."
