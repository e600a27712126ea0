"""The proxy does to a link what it was told, and nothing else."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from tests.chaos.proxy import LOOPBACK, Proxy
from tests.support.fleet import wait_until

PATIENCE = 30.0  # seconds for an answer that must come
ABSENCE = 0.2  # seconds of silence that count as nothing


class Echo:
    """A server that says back what it hears; `heard` is all of it."""

    def __init__(self) -> None:
        self.listener = socket.create_server((LOOPBACK, 0))
        self.port: int = self.listener.getsockname()[1]
        self.heard = b""
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                one, _ = self.listener.accept()
                threading.Thread(target=self._talk, args=[one], daemon=True).start()

    def _talk(self, one: socket.socket) -> None:
        with one, contextlib.suppress(OSError):
            while said := one.recv(65536):
                self.heard += said
                one.sendall(said)


@pytest.fixture
def echo() -> Iterator[Echo]:
    echo = Echo()
    yield echo
    echo.listener.close()


@pytest.fixture
def proxy(echo: Echo) -> Iterator[Proxy]:
    with Proxy(echo.port) as proxy:
        yield proxy


@pytest.fixture
def client(proxy: Proxy) -> Iterator[socket.socket]:
    with socket.create_connection((LOOPBACK, proxy.port), PATIENCE) as client:
        client.sendall(b"hello")
        assert client.recv(5) == b"hello"
        yield client


def is_silent(client: socket.socket) -> bool:
    client.settimeout(ABSENCE)
    try:
        client.recv(1)
    except TimeoutError:
        return True
    finally:
        client.settimeout(PATIENCE)
    return False


def test_it_forwards_both_ways_and_much(client: socket.socket) -> None:
    much = bytes(range(256)) * 8192
    threading.Thread(target=client.sendall, args=[much], daemon=True).start()
    got = b""
    while len(got) < len(much):
        got += client.recv(65536)
    assert got == much


def test_cut_ends_with_fin(proxy: Proxy, client: socket.socket) -> None:
    proxy.cut()
    assert client.recv(1) == b""
    assert proxy.connections == 0


def test_reset_ends_with_rst(proxy: Proxy, client: socket.socket) -> None:
    proxy.reset()
    with pytest.raises(ConnectionResetError):
        client.recv(1)


def test_a_broken_link_takes_new_connections(proxy: Proxy, client: socket.socket) -> None:
    proxy.reset()
    with socket.create_connection((LOOPBACK, proxy.port), PATIENCE) as again:
        again.sendall(b"again")
        assert again.recv(5) == b"again"
    assert proxy.accepted == 2


def test_stalled_nothing_passes_and_resumed_nothing_is_missing(proxy: Proxy, echo: Echo, client: socket.socket) -> None:
    proxy.stall()
    client.sendall(b"late")
    wait_until(lambda: proxy.holds("requests"))
    assert is_silent(client)
    assert echo.heard == b"hello"
    proxy.resume()
    assert client.recv(4) == b"late"


def test_stalled_answers_the_request_arrives_and_cut_the_answer_is_lost(
    proxy: Proxy, echo: Echo, client: socket.socket
) -> None:
    proxy.stall("answers")
    client.sendall(b"deed")
    wait_until(lambda: proxy.holds("answers"))
    assert echo.heard == b"hellodeed"
    proxy.cut()
    assert client.recv(4) == b""
    proxy.resume()


def test_a_stalled_link_takes_connections_and_says_nothing(proxy: Proxy) -> None:
    proxy.stall()
    with socket.create_connection((LOOPBACK, proxy.port), PATIENCE) as client:
        client.sendall(b"x")
        assert is_silent(client)
        proxy.resume()
        assert client.recv(1) == b"x"


def test_refused_who_is_connected_stays_and_accepted_the_port_is_the_same(proxy: Proxy, client: socket.socket) -> None:
    port = proxy.port
    proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((LOOPBACK, port), PATIENCE)
    client.sendall(b"still")
    assert client.recv(5) == b"still"
    proxy.accept()
    assert proxy.port == port
    socket.create_connection((LOOPBACK, port), PATIENCE).close()


def test_one_side_that_ends_is_told_to_the_other(proxy: Proxy, client: socket.socket) -> None:
    client.shutdown(socket.SHUT_WR)
    assert client.recv(1) == b""
    wait_until(lambda: proxy.connections == 0)


def test_a_server_that_is_away_is_no_silence() -> None:
    with socket.create_server((LOOPBACK, 0)) as taken:
        away = taken.getsockname()[1]
    with Proxy(away) as proxy, pytest.raises(ConnectionResetError):
        with socket.create_connection((LOOPBACK, proxy.port), PATIENCE) as client:
            client.recv(1)
