"""Write `jars.lock` again: `python -m deedbox_debezium.stack.lock_jars FOLDER` (FOLDER keeps what is fetched).

jgo resolves the coordinates below in pure Python. They are marked `raw`: else jgo would take each of them for a bill of
materials too, and the one of log4j would pull kafka-clients back to 3.9.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Final

from jgo.maven import Dependency, MavenContext

from deedbox_debezium.stack.jars import LOCK, Jar

KAFKA: Final = "4.4.0"
DEBEZIUM: Final = "3.6.1.Final"
WANTED: Final = {
    "kafka": [
        f"org.apache.kafka:kafka_2.13:{KAFKA}",
        f"org.apache.kafka:connect-runtime:{KAFKA}",
        f"org.apache.kafka:connect-json:{KAFKA}",
        f"org.apache.kafka:connect-transforms:{KAFKA}",
        f"org.apache.kafka:kafka-tools:{KAFKA}",
        "org.apache.logging.log4j:log4j-slf4j-impl:2.25.5",
    ],
    "debezium": [f"io.debezium:debezium-connector-postgres:{DEBEZIUM}"],
}
# What a plugin gets from the worker. kafka-clients is not among them: Connect prefers its own classes, and Debezium 3.6
# finds in the jar of 4.3 what 4.4 no longer has (org.apache.kafka.common.utils.Sanitizer). The official bundle does the
# same, and leaves out Jackson.
FROM_CONNECT: Final = (
    "org.apache.kafka:connect-api:",
    "org.slf4j:",
    "com.fasterxml.jackson",
    "com.github.luben:zstd-jni:",
    "at.yawk.lz4:",
    "org.xerial.snappy:",
)
HEADER: Final = f"""\
# Kafka {KAFKA} with Connect, and Debezium {DEBEZIUM}: class path, group:artifact:version, size in bytes, SHA-256.
# Written by `python -m deedbox_debezium.stack.lock_jars`; what is fetched is taken only if it agrees.
"""


def resolve(environment: str, repository: Path) -> list[Jar]:
    """Resolve one class path and fetch its jars to learn their sizes and hashes."""
    context = MavenContext(repo_cache=repository, local_repos=[])
    roots = [
        Dependency(context.project(group, artifact).at_version(version).artifact(), raw=True)
        for group, artifact, version in (coordinate.split(":") for coordinate in WANTED[environment])
    ]
    root, others = context.resolver.get_dependency_list(roots)
    jars = []
    for node in (*root.children, *others):
        artifact = node.dep.artifact
        coordinate = f"{artifact.groupId}:{artifact.artifactId}:{artifact.version}"
        if environment == "debezium" and coordinate.startswith(FROM_CONNECT):
            continue
        content = artifact.resolve().read_bytes()
        jars.append(Jar(environment, coordinate, len(content), hashlib.sha256(content).hexdigest()))
    return sorted(jars, key=lambda jar: jar.coordinate)


def main() -> None:
    """Resolve both class paths and write the lock beside this package."""
    repository = Path(sys.argv[1])
    rows = [
        f"{jar.environment} {jar.coordinate} {jar.size} {jar.sha256}\n"
        for environment in WANTED
        for jar in resolve(environment, repository)
    ]
    Path(__file__).parent.parent.joinpath(LOCK).write_text(HEADER + "".join(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
