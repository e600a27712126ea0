"""Kafka of the local stack: one broker that is its own controller (KRaft)."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Final, Literal

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from deedbox.errors import StackFailed
from deedbox_debezium.stack.jars import Jars
from deedbox_debezium.stack.java import Jvm
from deedbox_debezium.stack.ports import LOOPBACK, listens
from deedbox_debezium.stack.process import Part
from deedbox_debezium.stack.progress import Progress
from deedbox_debezium.stack.state import State

HEAP: Final = (256, 512)
ASK_WITHIN: Final = 1.0  # seconds for one metadata answer


class Kafka:
    """The broker that belongs to one stack's folder."""

    def __init__(self, folder: Path, state: State, jars: Jars, progress: Progress) -> None:
        self.folder = folder
        self.state = state
        self.jars = jars
        self.progress = progress
        self.jvm: Jvm = Jvm(folder / "kafka", HEAP, jars)

    @property
    def name(self) -> Literal["kafka"]:
        """Its name in the stack."""
        return "kafka"

    @property
    def part(self) -> Part:
        """How to find and stop it."""
        return Part(self.name, self.folder / "run" / "kafka.pid", self.jvm.marker, signal.SIGTERM)

    @property
    def bootstrap(self) -> str:
        """Where clients connect."""
        return f"{LOOPBACK}:{self.state.ports['kafka']}"

    @property
    def data(self) -> Path:
        """The broker's log folder, there only when it has been formatted."""
        return self.jvm.home / "data"

    @cached_property
    def environment(self) -> Mapping[str, str]:
        """What `server.properties` asks for."""
        controller = f"{LOOPBACK}:{self.state.ports['controller']}"
        return {
            "DEEDBOX_KAFKA_VOTER": f"1@{controller}",
            "DEEDBOX_KAFKA_LISTENERS": f"PLAINTEXT://{self.bootstrap},CONTROLLER://{controller}",
            "DEEDBOX_KAFKA_ADVERTISED": f"PLAINTEXT://{self.bootstrap}",
            "DEEDBOX_KAFKA_DATA": str(self.data),
        }

    def start(self, *, supervised: bool, training: bool = False) -> None:
        """Fetch the jars and format the storage if need be, and start the broker."""
        self.jars.fetch(self.progress)
        properties = self.jvm.place("server.properties")
        if not self.data.exists():
            self._format(properties)
        self.part.start(
            self.jvm.command("kafka.Kafka", str(properties), training=training),
            log=self.folder / "logs" / "kafka.log",
            cwd=self.jvm.home,
            environment=self.environment,
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
        """Whether the broker gives its metadata, and is ours."""
        if not listens(self.state.ports["kafka"]):
            return False  # a client of its own for each look would cost more than the broker's start
        client = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        try:
            found = client.list_topics(timeout=ASK_WITHIN)
        except KafkaException:
            return False
        return bool(found.cluster_id == self.state.cluster_id and found.brokers)

    def settle(self) -> None:
        """Nothing: topics belong to whoever uses them."""

    def remove(self) -> None:
        """Delete its data."""
        self.jvm.remove()

    def _format(self, properties: Path) -> None:
        """Format into a folder of another name first: a format that is killed leaves nothing that looks finished."""
        unfinished = self.data.with_name("data.new")
        shutil.rmtree(unfinished, ignore_errors=True)
        command = self.jvm.command(
            "kafka.tools.StorageTool", "format", "-t", self.state.cluster_id, "-c", str(properties)
        )
        environment = {**os.environ, **self.environment, "DEEDBOX_KAFKA_DATA": str(unfinished)}
        made = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        if made.returncode:
            raise StackFailed(part=self.name, reason=(made.stderr or made.stdout).strip(), log="(kafka-storage format)")
        unfinished.rename(self.data)
