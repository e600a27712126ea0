"""What a stack remembers, and the ports it chooses."""

from __future__ import annotations

import socket
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from deedbox_debezium.stack import Stack
from deedbox_debezium.stack.ports import RANGE, choose, is_free
from deedbox_debezium.stack.stack import Service
from deedbox_debezium.stack.state import State


def test_a_port_that_somebody_listens_on_is_not_free() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        assert not is_free(server.getsockname()[1])


def test_a_chosen_port_is_free_and_outside_the_outgoing_range() -> None:
    port = choose()
    assert port in RANGE
    assert is_free(port)
    assert choose({port}) != port


def test_state_survives_and_is_private(tmp_path: Path) -> None:
    path = tmp_path / "stack.json"
    state = State.load(path)
    state.ports["postgres"] = 20_001
    state.save(path)
    state.save(path)
    assert State.load(path) == state
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_two_stacks_share_no_password() -> None:
    one, other = State(), State()
    passwords = {one.password, one.connect_password, other.password, other.connect_password}
    assert len(passwords) == 4
    assert one.cluster_id != other.cluster_id


@pytest.mark.parametrize("text", ["", "{"])
def test_a_spoilt_memory_is_an_error_and_not_a_new_stack(tmp_path: Path, text: str) -> None:
    path = tmp_path / "stack.json"
    path.write_text(text)
    with pytest.raises(ValueError, match="Expecting"):
        State.load(path)


def test_parts_that_start_beside_each_other_note_their_ports_one_at_a_time(tmp_path: Path) -> None:
    stack = Stack(tmp_path)
    postgres, kafka, _ = stack._services()

    def take(service: Service) -> None:
        for _ in range(100):
            assert stack._take_ports(service)

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(take, service) for service in (postgres, kafka)]:
            done.result()
    assert set(State.load(tmp_path / "stack.json").ports) == {"postgres", "kafka", "controller"}
