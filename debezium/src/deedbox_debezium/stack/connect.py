"""Kafka Connect of the local stack, with Debezium as its only plugin folder."""

from __future__ import annotations

import json
import signal
from contextlib import closing
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, Final, Literal

from deedbox_debezium.stack.jars import Jars
from deedbox_debezium.stack.java import Jvm
from deedbox_debezium.stack.kafka import Kafka
from deedbox_debezium.stack.ports import LOOPBACK
from deedbox_debezium.stack.process import Part
from deedbox_debezium.stack.progress import Progress
from deedbox_debezium.stack.state import State

HEAP: Final = (256, 768)  # Debezium's queue is bounded to 64 MB; the rest is Connect and its producers
ASK_WITHIN: Final = 5.0  # seconds for one HTTP answer


class Connect:
    """The worker that belongs to one stack's folder."""

    def __init__(self, folder: Path, state: State, jars: Jars, progress: Progress) -> None:
        self.folder = folder
        self.state = state
        self.jars = jars
        self.progress = progress
        self.jvm: Jvm = Jvm(folder / "connect", HEAP, jars)

    @property
    def name(self) -> Literal["connect"]:
        """Its name in the stack."""
        return "connect"

    @property
    def part(self) -> Part:
        """How to find and stop it."""
        return Part(self.name, self.folder / "run" / "connect.pid", self.jvm.marker, signal.SIGTERM)

    @property
    def url(self) -> str:
        """Base URL of the REST interface."""
        return f"http://{LOOPBACK}:{self.state.ports['connect']}"

    def start(self, *, supervised: bool, training: bool = False) -> None:
        """Start the worker. The plugin folder is found below the working folder, in compose as here."""
        self.jars.fetch(self.progress)
        properties = self.jvm.place("connect.properties")
        plugins = self.jvm.home / "plugins"
        plugins.unlink(missing_ok=True)
        plugins.symlink_to(self.jars.plugin_path.resolve())
        self.part.start(
            self.jvm.command("org.apache.kafka.connect.cli.ConnectDistributed", str(properties), training=training),
            log=self.folder / "logs" / "connect.log",
            cwd=self.jvm.home,
            environment={
                "DEEDBOX_KAFKA": Kafka(self.folder, self.state, self.jars, self.progress).bootstrap,
                "DEEDBOX_CONNECT_LISTENERS": self.url,
                "DEEDBOX_CONNECT_ADVERTISED_HOST": LOOPBACK,
                "DEEDBOX_DATABASE_HOST": LOOPBACK,
                "DEEDBOX_DATABASE_PORT": str(self.state.ports["postgres"]),
                "DEEDBOX_CONNECT_PASSWORD": self.state.connect_password,
            },
            supervised=supervised,
        )

    @property
    def trained(self) -> bool:
        """Whether its training run is over."""
        return self.jvm.trained

    def learn(self) -> None:
        """Keep what the training run wrote."""
        self.jvm.learn()

    def answers(self) -> bool:
        """Whether the worker has joined its group and serves (`/health`), and belongs to our broker."""
        with closing(HTTPConnection(LOOPBACK, self.state.ports["connect"], timeout=ASK_WITHIN)) as connection:
            try:
                healthy, _ = self._get(connection, "/health")
                _, about = self._get(connection, "/")
            except (OSError, HTTPException, ValueError):
                return False
        return healthy == HTTPStatus.OK and bool(about.get("kafka_cluster_id") == self.state.cluster_id)

    def _get(self, connection: HTTPConnection, path: str) -> tuple[int, dict[str, Any]]:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())

    def settle(self) -> None:
        """Nothing: a connector is put there by `deedbox connector apply`."""

    def remove(self) -> None:
        """Delete its folder; what Connect knows lies in Kafka."""
        self.jvm.remove()
