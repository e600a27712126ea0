"""The jars: what is locked is what runs."""

from __future__ import annotations

import hashlib
from contextlib import nullcontext
from pathlib import Path

import pytest

from deedbox.errors import JarRefused
from deedbox_debezium.stack import Silent, jars
from deedbox_debezium.stack.jars import Jar, Jars, locked

CONTENT = b"a jar, as it was locked"


@pytest.fixture
def jar() -> Jar:
    return Jar("kafka", "org.example:thing:1.0", len(CONTENT), hashlib.sha256(CONTENT).hexdigest())


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What the repository gives, one after the other; what is fetched is taken away."""
    contents: list[bytes] = []

    def fetch(jar: Jar, target: Path) -> None:
        if not contents:
            raise OSError(f"no {jar.filename}")
        target.write_bytes(contents.pop(0))

    monkeypatch.setattr(jars, "_repository", lambda: nullcontext(fetch))
    monkeypatch.setattr(jars, "TRY_WITHIN", 0)
    return contents


def test_the_lock_pins_every_jar_and_holds_no_address() -> None:
    names = [jar.filename for jar in locked()]
    assert "kafka-clients-4.4.0.jar" in names
    assert "debezium-connector-postgres-3.6.1.Final.jar" in names
    assert len({(jar.environment, jar.filename) for jar in locked()}) == len(names)
    assert all(len(jar.sha256) == 64 and jar.size > 0 for jar in locked())
    assert not any("/" in jar.coordinate for jar in locked())


def test_a_jar_is_fetched_once(tmp_path: Path, jar: Jar, offered: list[bytes]) -> None:
    offered.append(CONTENT)
    cache = Jars(tmp_path, [jar])
    cache.fetch(Silent())
    cache.fetch(Silent())
    assert cache.path(jar).read_bytes() == CONTENT
    assert cache.wanting() == []


@pytest.mark.parametrize("spoilt", [CONTENT[:-1], CONTENT.replace(b"a jar", b"A jar"), b""])
def test_a_spoilt_jar_is_fetched_again(tmp_path: Path, jar: Jar, offered: list[bytes], spoilt: bytes) -> None:
    cache = Jars(tmp_path, [jar])
    offered.append(CONTENT)
    cache.fetch(Silent())
    cache.path(jar).write_bytes(spoilt)
    learned = cache.folder / "kafka-25.aot"
    learned.touch()
    offered.append(CONTENT)
    cache.fetch(Silent())
    assert cache.path(jar).read_bytes() == CONTENT
    assert not learned.exists()


@pytest.mark.parametrize("given", [CONTENT[:-1], CONTENT + b"!", CONTENT.replace(b"a jar", b"A jar")])
def test_a_jar_that_is_not_as_locked_is_refused(tmp_path: Path, jar: Jar, offered: list[bytes], given: bytes) -> None:
    offered.append(given)
    cache = Jars(tmp_path, [jar])
    with pytest.raises(JarRefused, match=r"org\.example:thing:1\.0 cannot be used: its SHA-256 is"):
        cache.fetch(Silent())
    assert not cache.path(jar).exists()
    assert list(cache.folder.glob("tmp*")) == []


def test_a_jar_that_cannot_be_had_is_named(tmp_path: Path, jar: Jar, offered: list[bytes]) -> None:
    with pytest.raises(JarRefused, match="could not be fetched"):
        Jars(tmp_path, [jar]).fetch(Silent())


def test_a_stranger_on_the_class_path_is_removed(tmp_path: Path, jar: Jar, offered: list[bytes]) -> None:
    offered.append(CONTENT)
    cache = Jars(tmp_path, [jar])
    cache.fetch(Silent())
    stranger = cache.path(jar).with_name("stranger.jar")
    stranger.touch()
    cache.fetch(Silent())
    assert not stranger.exists()
