"""The local stack's PostgreSQL: real processes in a folder of their own."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from deedbox.errors import NoConnectRole, NoLogicalDecoding, NotMigrated, StackFailed
from deedbox.migrate import grant_roles, migrate
from deedbox.settings import Settings
from deedbox_debezium.connector import apply
from deedbox_debezium.patience import wait_for
from deedbox_debezium.stack import Stack, postgres


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Stack]:
    """A stack of this test alone."""
    with Stack(tmp_path / ".deedbox", supervised=True) as stack:
        stack.up("postgres")
        yield stack
    if os.geteuid() == 0:
        stack.erase()  # pytest's folders are closed to others: the data may lie elsewhere


def _ask(stack: Stack) -> int:
    with psycopg.connect(stack.database_url) as connection:
        (number,) = connection.execute("SELECT count(*) FROM kept").fetchone() or (0,)
        return int(number)


def _keep(stack: Stack) -> None:
    with psycopg.connect(stack.database_url) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 1")


def _postmaster_pid(stack: Stack) -> Path:
    return Path(stack._postgres.data) / "postmaster.pid"


def test_a_killed_server_starts_again_with_what_was_committed(own: Stack) -> None:
    _keep(own)
    own.kill("postgres")
    assert not own.status()["postgres"]["running"]
    own.start("postgres")
    assert _ask(own) == 1


def test_a_stale_lock_with_a_strangers_id_does_not_hinder_a_start(own: Stack) -> None:
    _keep(own)
    own.kill("postgres")
    with subprocess.Popen(["/bin/sleep", "60"], user=own._postgres.user) as stranger:
        lock = _postmaster_pid(own)
        lock.write_text(lock.read_text().replace(lock.read_text().split()[0], str(stranger.pid), 1))
        own._postgres.part.pid_file.write_text(str(stranger.pid))
        own.start("postgres")
        assert stranger.poll() is None
        stranger.kill()
    assert _ask(own) == 1


def test_a_taken_port_is_exchanged_and_the_settings_follow(own: Stack) -> None:
    _keep(own)
    own.down()
    port = own.state.ports["postgres"]
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", port))
        other.listen()
        own.start("postgres")
    assert own.state.ports["postgres"] != port
    settings = json.loads((own.folder / "settings.json").read_text())
    assert settings["database_url"] == own.database_url
    assert _ask(own) == 1


def test_what_ran_before_is_left_running(own: Stack) -> None:
    own.up("postgres")
    with Stack(own.folder, supervised=True) as guest:
        guest.up("postgres")
    assert own.status()["postgres"]["answers"]


def test_starting_what_runs_changes_nothing(own: Stack) -> None:
    before = own.status()["postgres"]
    own.up("postgres")
    assert own.status()["postgres"] == before


def test_another_user_of_the_machine_needs_the_password(own: Stack) -> None:
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(own.database_url.replace(own.state.password, "guessed"))


def test_a_server_that_cannot_start_is_an_error_with_its_last_words(own: Stack) -> None:
    own.down()
    (own._postgres.data / "PG_VERSION").write_text("9.6\n")
    with pytest.raises(StackFailed, match=r"postgres of the local stack did not come up: .*9\.6"):
        own.start("postgres")
    assert not own.status()["postgres"]["running"]


def test_its_database_is_at_hand(own: Stack) -> None:
    own.up("postgres")
    deedbox = [str(Path(sys.executable).parent / "deedbox"), "stack"]
    place = ["--folder", str(own.folder)]
    url = subprocess.run([*deedbox, "url", *place], capture_output=True, text=True, check=True).stdout
    assert url == f"{own.database_url}\n"
    (own.folder / "below").mkdir()
    asked = [*deedbox, "psql", "-tAc", "SELECT current_user, 6 * 7"]
    assert (
        subprocess.run(asked, cwd=own.folder / "below", capture_output=True, text=True, check=True).stdout
        == "deedbox|42\n"
    )
    nowhere = [*deedbox, "url", "--folder", str(own.folder / "nowhere")]
    ended = subprocess.run(nowhere, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "deedbox stack up" in ended.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="as an ordinary user the server is our own")
def test_a_folder_closed_to_others_sends_the_data_elsewhere(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    stack = Stack(closed / ".deedbox", supervised=True)
    with stack:
        stack.up("postgres")
        elsewhere = stack._postgres.data
        assert elsewhere.is_relative_to(postgres.ELSEWHERE)
        _keep(stack)
        assert _ask(stack) == 1
    stack.erase()
    assert not elsewhere.exists()
    assert not stack.folder.exists()


def test_nothing_is_left_when_the_owner_is_killed(tmp_path: Path, own: Stack) -> None:
    own.down()
    program = "import sys, time; from pathlib import Path; from deedbox_debezium.stack import Stack; "
    program += "Stack(Path(sys.argv[1]), supervised=True).up('postgres'); print(flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", program, str(own.folder)], stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        owner.stdout.readline()
        assert own.status()["postgres"]["running"]
        owner.send_signal(signal.SIGKILL)
    assert wait_for(lambda: not own.status()["postgres"]["running"], within=10)


def test_a_connector_needs_a_ledger_logical_decoding_and_its_role(own: Stack) -> None:
    settings = Settings(database_url=own.database_url, connect_url="http://127.0.0.1:1")
    with pytest.raises(NotMigrated, match="deedbox init"):
        apply(settings)
    with psycopg.connect(own.database_url, autocommit=True) as connection:
        migrate(connection)
        with pytest.raises(NoConnectRole, match=r"deedbox_connect .*init --roles"):
            apply(settings)
        grant_roles(connection)  # without a password the role cannot log in
        with pytest.raises(NoConnectRole):
            apply(settings)
        grant_roles(connection, connect_password=own.connect_password)
        connection.execute("ALTER SYSTEM SET wal_level = replica")
    own.down()
    own.start("postgres")
    with pytest.raises(NoLogicalDecoding, match=r"wal_level=replica .*ALTER SYSTEM SET wal_level = 'logical'"):
        apply(settings)
