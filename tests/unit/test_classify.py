"""What an exception says of an attempt, as the real clients raise it against a real server."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import aiohttp
import httpx
import httpx2
import pytest
import requests
import urllib3
from requests.adapters import HTTPAdapter

from deedbox.errors import OutcomeUnknown, Refusal, RetryLater, StoredFailure
from deedbox_consumers.classify import LONGEST_AFTER, MESSAGE_LIMIT, Finding, classify

SOON = 0.2  # seconds: what waits for a silent server gives up
NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)

Post = Callable[[str], Awaitable[None]]


class Provider(BaseHTTPRequestHandler):
    """It answers as the query says: status, location, header=Name:value, body, or how=silent or cut."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        asked = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
        if asked.get("how") == "silent":
            self.connection.recv(1)  # until the client has enough
        if "how" in asked:
            self.close_connection = True
            return
        body = asked.get("body", "").encode()
        self.send_response(int(asked["status"]))
        if "location" in asked:
            self.send_header("Location", asked["location"])
        if "header" in asked:
            self.send_header(*asked["header"].split(":", 1))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PUT = do_POST  # noqa: N815 - the names that http.server looks for

    def date_time_string(self, timestamp: float | None = None) -> str:
        return format_datetime(NOW, usegmt=True)

    def log_message(self, format: str, *args: object) -> None:
        """Quietly."""


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that hang up are what is tested."""


@pytest.fixture(scope="module")
def provider() -> Iterator[str]:
    with Server(("127.0.0.1", 0), Provider) as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()
        thread.join()


@pytest.fixture
def nobody() -> str:
    """An address where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    return f"http://127.0.0.1:{port}/"


@pytest.fixture
def busy() -> Iterator[str]:
    """An address that takes no more connections."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.socket())
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                waiting.connect(server.getsockname())
        yield f"http://127.0.0.1:{server.getsockname()[1]}/busy"


def patience(url: str) -> float:
    """Seconds: short for what never answers, ample for what does."""
    return SOON if "silent" in url or "busy" in url else 30.0


async def by_httpx(url: str) -> None:
    async with httpx.AsyncClient(timeout=patience(url), follow_redirects=True, verify=False) as http:
        (await http.post(url, content=b"{}")).raise_for_status()


async def by_httpx_sync(url: str) -> None:
    with httpx.Client(timeout=patience(url), follow_redirects=True, verify=False) as http:
        http.post(url, content=b"{}").raise_for_status()  # noqa: ASYNC212 - the sync client is what is tested


async def by_httpx2(url: str) -> None:
    async with httpx2.AsyncClient(timeout=patience(url), follow_redirects=True, verify=False) as http:
        (await http.post(url, content=b"{}")).raise_for_status()


async def by_httpx2_sync(url: str) -> None:
    with httpx2.Client(timeout=patience(url), follow_redirects=True, verify=False) as http:
        http.post(url, content=b"{}").raise_for_status()


async def by_requests(url: str) -> None:
    requests.post(url, data=b"{}", timeout=patience(url)).raise_for_status()  # noqa: ASYNC210 - as above


async def by_aiohttp(url: str) -> None:
    limit = aiohttp.ClientTimeout(sock_connect=patience(url), sock_read=patience(url))
    async with aiohttp.ClientSession(timeout=limit) as http, http.post(url, data=b"{}") as reply:
        reply.raise_for_status()


CLIENTS = [by_httpx, by_httpx_sync, by_httpx2, by_httpx2_sync, by_requests, by_aiohttp]
every_client = pytest.mark.parametrize("post", CLIENTS)


async def found(post: Post, url: str, **how: Any) -> Finding:
    """What is said of the exception that a post ends with."""
    try:
        await post(url)
    except Exception as problem:  # noqa: BLE001 - whichever it is, it is the subject
        return classify(problem, **how)
    raise AssertionError("nothing was raised")


# --- sent or not ------------------------------------------------------------------------------------------------------


@every_client
async def test_a_refused_connection_was_not_sent(post: Post, nobody: str) -> None:  # I7
    finding = await found(post, nobody)
    assert (finding.end, finding.after, finding.code) == ("retry", None, None)


@every_client
async def test_a_connection_that_comes_to_nothing_was_not_sent(post: Post, busy: str) -> None:
    assert (await found(post, busy)).end == "retry"


@every_client
async def test_a_name_that_is_not_found_was_not_sent(post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    assert (await found(post, "http://provider.invalid/")).end == "retry"


@pytest.mark.parametrize("post", CLIENTS)
async def test_a_url_that_cannot_be_used_was_not_sent(post: Post) -> None:
    assert (await found(post, "provider.invalid/v1")).end == "retry"


@every_client
@pytest.mark.parametrize("how", ["silent", "cut"])
async def test_sent_and_not_answered_is_unknown(post: Post, provider: str, how: str) -> None:  # I7 I16
    """Source: retries after a read timeout on every tool, and the model was told to try again."""
    assert (await found(post, f"{provider}?how={how}")).end == "unknown"


@every_client
async def test_from_the_mark_on_nothing_is_taken_as_not_sent(post: Post, nobody: str, provider: str) -> None:
    assert (await found(post, nobody, marked=True)).end == "unknown"
    for status in (402, 429):
        assert (await found(post, f"{provider}?status={status}", marked=True)).end == "unknown"


@every_client
@pytest.mark.parametrize(("status", "end"), [(301, "unknown"), (302, "unknown"), (303, "unknown"), (307, "retry")])
async def test_a_refused_connection_behind_a_redirect_says_nothing_of_the_first_request(
    post: Post, provider: str, nobody: str, status: int, end: str
) -> None:
    assert (await found(post, f"{provider}?status={status}&location={nobody}")).end == end


@every_client
@pytest.mark.parametrize("there", ["ftp://provider.invalid/", "http:///", "http://[/"])
async def test_a_redirect_to_nowhere_says_nothing_of_the_first_request(post: Post, provider: str, there: str) -> None:
    assert (await found(post, f"{provider}?status=303&location={there}")).end == "unknown"


@every_client
@pytest.mark.parametrize(("status", "end"), [(303, "unknown"), (308, "refused")])
async def test_a_no_behind_a_redirect_says_nothing_of_the_first_request(
    post: Post, provider: str, status: int, end: str
) -> None:
    there = f"{provider}%3Fstatus=404"
    assert (await found(post, f"{provider}?status={status}&location={there}")).end == end


@pytest.mark.parametrize(
    ("problem", "end"),
    [
        (ConnectionRefusedError(111, "Connection refused"), "retry"),
        (socket.gaierror(-2, "Name or service not known"), "retry"),
        (ssl.SSLCertVerificationError(1, "certificate has expired"), "retry"),
        (ConnectionResetError(104, "Connection reset by peer"), "unknown"),
        (BrokenPipeError(32, "Broken pipe"), "unknown"),
        (ssl.SSLError(1, "decryption failed"), "unknown"),
        (TimeoutError(), "unknown"),
        (OSError(113, "No route to host"), "unknown"),
        (ValueError("odd"), "unknown"),
        (ExceptionGroup("two", [ConnectionRefusedError()]), "unknown"),
    ],
)
def test_of_a_socket_only_what_is_certain(problem: Exception, end: str) -> None:
    assert classify(problem).end == end


@pytest.mark.parametrize(
    ("reason", "end"),
    [
        (urllib3.exceptions.SSLError(ssl.SSLCertVerificationError(1, "expired")), "retry"),
        (urllib3.exceptions.SSLError(ssl.SSLError(1, "decryption failed")), "unknown"),
        (urllib3.exceptions.ProxyError("no tunnel", ConnectionRefusedError()), "retry"),
        (urllib3.exceptions.ProxyError("no tunnel", OSError("tunnel answered 403")), "unknown"),
        (urllib3.exceptions.ResponseError("too many 503 error responses"), "unknown"),
    ],
)
def test_what_requests_wraps_is_read(reason: Exception, end: str) -> None:
    pool = urllib3.HTTPConnectionPool("provider.invalid")
    problem = requests.exceptions.SSLError(urllib3.exceptions.MaxRetryError(pool, "/", reason))
    assert classify(problem).end == end


def test_a_namesake_of_a_clients_exception_says_nothing() -> None:
    class ConnectError(Exception):
        """Of the shop's own."""

    assert classify(ConnectError()).end == "unknown"


# --- what went before -------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def answers_once(first: bytes | None) -> Iterator[str]:
    """A server that answers its first request, or cuts it off, and then is gone in the midst of a second."""

    def serve() -> None:
        connection, _ = server.accept()
        with connection:
            connection.recv(65536)
            if first is not None:
                connection.sendall(first)
                connection.recv(65536)
            server.close()

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/"
        thread.join()


async def test_a_repeat_of_requests_own_hides_no_request_before() -> None:
    adapter = HTTPAdapter(max_retries=urllib3.Retry(1, allowed_methods=None))
    with answers_once(None) as url, requests.Session() as http:
        http.mount("http://", adapter)
        with pytest.raises(requests.ConnectionError, match="refused") as raised:
            http.post(url, timeout=30)
    assert classify(raised.value).end == "unknown"


async def test_repeats_that_were_never_sent_leave_it_plain(nobody: str) -> None:
    adapter = HTTPAdapter(max_retries=urllib3.Retry(2, allowed_methods=None))
    with requests.Session() as http, pytest.raises(requests.ConnectionError) as raised:
        http.mount("http://", adapter)
        http.post(nobody, timeout=30)
    assert classify(raised.value).end == "retry"


async def test_a_repeat_of_aiohttps_own_hides_no_request_before() -> None:
    keeps = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    with answers_once(keeps) as url:
        async with aiohttp.ClientSession() as http:
            (await http.get(url)).release()
            with pytest.raises(aiohttp.ClientConnectorError) as raised:
                await http.put(url)
    assert classify(raised.value).end == "unknown"


@pytest.mark.parametrize("post", CLIENTS[:-1])  # aiohttp's exceptions do not tell during which others they were raised
async def test_a_handler_that_tries_again_by_itself_hides_no_request_before(
    post: Post, provider: str, nobody: str
) -> None:
    async def twice(_: str) -> None:
        try:
            await post(f"{provider}?how=cut")
        except Exception:  # noqa: BLE001 - as handlers do
            await post(nobody)

    assert (await found(twice, "")).end == "unknown"


@every_client
async def test_a_handler_that_found_nobody_at_two_addresses_has_sent_nothing(post: Post, nobody: str) -> None:
    async def twice(_: str) -> None:
        try:
            await post(nobody)
        except Exception:  # noqa: BLE001 - as handlers do
            await post(nobody)

    assert (await found(twice, "")).end == "retry"


@every_client
async def test_what_else_a_handler_met_before_is_no_request(post: Post, nobody: str) -> None:
    async def looks_up(_: str) -> None:
        try:
            raise KeyError("customer")
        except KeyError:
            await post(nobody)

    assert (await found(looks_up, "")).end == "retry"


@every_client
async def test_what_wraps_is_not_looked_into(post: Post, nobody: str, provider: str) -> None:
    """A provider's own client may have repeated by itself: what it wraps is only the last that happened."""

    class ProviderError(Exception):
        """Of a provider's own client."""

    for url in (nobody, f"{provider}?status=402"):

        async def wraps(_: str, url: str = url) -> None:
            try:
                await post(url)
            except Exception as problem:
                raise ProviderError("no answer") from problem

        assert (await found(wraps, "")).end == "unknown"


# --- answers ----------------------------------------------------------------------------------------------------------


@every_client
@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 410, 422, 451])
async def test_a_4xx_is_the_providers_no(post: Post, provider: str, status: int) -> None:
    finding = await found(post, f"{provider}?status={status}")
    assert (finding.end, finding.code, finding.after) == ("refused", f"http_{status}", None)
    assert finding.reason.startswith(f"HTTP {status}: ")


@every_client
@pytest.mark.parametrize("status", [401, 403, 404, 405, 407, 413, 414, 415, 421, 431])
async def test_a_no_at_the_door_is_about_this_request_only(post: Post, provider: str, status: int) -> None:  # I16
    assert not (await found(post, f"{provider}?status={status}")).settles
    url = f"{provider}?status={status}&header=Idempotent-Replayed:true"
    assert (await found(post, url, replayed="Idempotent-Replayed")).settles


@pytest.mark.parametrize("status", [400, 402, 410, 422])
async def test_a_no_to_what_was_asked_is_about_every_request_under_the_key(provider: str, status: int) -> None:  # I16
    assert (await found(by_httpx2, f"{provider}?status={status}")).settles


@every_client
@pytest.mark.parametrize("status", [409, 425, 429])
async def test_some_4xx_ask_for_later(post: Post, provider: str, status: int) -> None:
    assert (await found(post, f"{provider}?status={status}")).end == "retry"
    finding = await found(post, f"{provider}?status={status}&header=Retry-After:7")
    assert (finding.end, finding.after) == ("retry", timedelta(seconds=7))


@every_client
async def test_any_no_with_a_time_asks_for_later(post: Post, provider: str) -> None:
    """GitHub says 403 with Retry-After for its secondary limits."""
    finding = await found(post, f"{provider}?status=403&header=Retry-After:60")
    assert (finding.end, finding.after) == ("retry", timedelta(minutes=1))


@every_client
@pytest.mark.parametrize("status", [408, 499, 500, 502, 503, 504, 599])
async def test_where_nobody_answered_it_is_unknown(post: Post, provider: str, status: int) -> None:  # I16
    finding = await found(post, f"{provider}?status={status}&header=Retry-After:9")
    assert (finding.end, finding.after) == ("unknown", timedelta(seconds=9))


@pytest.mark.parametrize("post", [by_httpx, by_httpx2])
async def test_a_redirect_that_is_not_followed_is_unknown(post: Post, provider: str) -> None:
    assert (await found(post, f"{provider}?status=304")).end == "unknown"


async def test_a_yes_that_cannot_be_read_is_unknown(provider: str) -> None:
    async def reads(url: str) -> None:
        async with aiohttp.ClientSession() as http, http.post(url) as reply:
            await reply.json()

    assert (await found(reads, f"{provider}?status=200&body=done")).end == "unknown"


@every_client
@pytest.mark.parametrize(
    ("status", "end"), [(500, "stored"), (503, "stored"), (402, "refused"), (409, "refused"), (429, "refused")]
)
async def test_a_stored_answer_does_not_change_by_waiting(post: Post, provider: str, status: int, end: str) -> None:
    url = f"{provider}?status={status}&header=Idempotent-Replayed:true"
    assert (await found(post, url, replayed="idempotent-replayed")).end == end
    assert (await found(post, url, replayed="X-Other")).end == (await found(post, url)).end
    fresh = f"{provider}?status=500&header=Idempotent-Replayed:false"
    assert (await found(post, fresh, replayed="Idempotent-Replayed")).end == "unknown"


async def test_a_stored_failure_stays_one_after_the_mark(provider: str) -> None:
    url = f"{provider}?status=500&header=Idempotent-Replayed:true"
    assert (await found(by_httpx2, url, replayed="Idempotent-Replayed", marked=True)).end == "stored"


@pytest.mark.parametrize("post", CLIENTS[:-1])
async def test_a_refusal_holds_a_short_clean_piece_of_the_body(post: Post, provider: str) -> None:  # I14
    finding = await found(post, f"{provider}?status=402&body=%7B%22error%22:%0A%20%20%22card%00%FFdeclined%22%7D")
    assert finding.message == '{"error": "card\\0\ufffddeclined"}'
    assert finding.message in finding.reason
    finding = await found(post, f"{provider}?status=402&body={'x' * 5000}")
    assert finding.message == "x" * MESSAGE_LIMIT


@every_client
async def test_an_answer_without_a_body_has_its_phrase(post: Post, provider: str) -> None:
    assert (await found(post, f"{provider}?status=402")).message == "Payment Required"


@pytest.mark.parametrize("encoding", ["no-such-encoding", "utf-16"])
async def test_a_made_up_encoding_spoils_nothing(provider: str, encoding: str) -> None:
    url = f"{provider}?status=402&body=abc&header=Content-Type:text/plain%3Bcharset%3D{encoding}"
    for post in (by_httpx, by_requests):
        assert (await found(post, url)).message


async def test_a_body_that_was_not_read_is_not_waited_for(provider: str) -> None:
    async def streams(url: str) -> None:
        with requests.post(url, stream=True, timeout=30) as reply:  # noqa: ASYNC210 - as above
            reply.raise_for_status()

    assert (await found(streams, f"{provider}?status=402&body=abc")).message == "Payment Required"


@pytest.mark.parametrize(
    ("header", "after"),
    [
        ("0", timedelta(0)),
        ("1.5", timedelta(seconds=1.5)),
        (format_datetime(NOW + timedelta(minutes=2), usegmt=True), timedelta(minutes=2)),
        (format_datetime(NOW - timedelta(minutes=2), usegmt=True), timedelta(0)),
        ("Tue, 1 Dec 2026 12:00:30 -0000", timedelta(seconds=30)),
        ("999999999999", LONGEST_AFTER),
        ("9" * 400, None),
        ("-5", None),
        ("soon", None),
        ("", None),
        ("nan", None),
    ],
)
async def test_retry_after_is_seconds_or_a_date_by_the_providers_clock(
    provider: str, header: str, after: timedelta | None
) -> None:
    finding = await found(by_httpx2, f"{provider}?status=429&header=Retry-After:{header.replace(' ', '%20')}")
    assert (finding.end, finding.after) == ("retry", after)


# --- what a handler says itself ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("marked", [False, True])
def test_a_handlers_own_word_counts(marked: bool) -> None:
    assert classify(RetryLater(5), marked=marked) == Finding("retry", "it was put off", timedelta(seconds=5))
    assert classify(RetryLater(-5)).after == timedelta(0)
    assert classify(RetryLater(1e9)).after == LONGEST_AFTER
    assert classify(OutcomeUnknown("read timed out"), marked=marked) == Finding("unknown", "read timed out")
    refused = classify(Refusal("card_declined", "no funds"), marked=marked)
    assert (refused.end, refused.code, refused.message) == ("refused", "card_declined", "no funds")
    assert refused.settles
    stored = classify(StoredFailure("internal", "kept"), marked=marked)
    assert (stored.end, stored.code, stored.message) == ("stored", "internal", "kept")


def test_a_reason_is_one_line() -> None:
    assert classify(ValueError("two\nlines\0")).reason == "ValueError: two lines\\0"
    assert classify(KeyError()).reason == "KeyError"


def test_what_cannot_even_be_read_is_unknown() -> None:
    class Broken(ConnectionRefusedError):
        @property
        def reason(self) -> str:
            raise RuntimeError("and so on")

        def __str__(self) -> str:
            raise RuntimeError("and so on")

    assert classify(Broken()) == Finding("unknown", "Broken: a Broken that cannot be shown")
    ring = ConnectionRefusedError()
    ring.args = (ConnectionRefusedError(ring),)
    assert classify(ring).end == "retry"


@pytest.mark.parametrize(
    ("problem", "broken"),
    [
        (ConnectionRefusedError(), True),
        (TimeoutError(), True),
        (ValueError("a handler's own fault stops its tool, too"), True),
        (RetryLater(1), False),
        (Refusal("a", "b"), False),
        (StoredFailure("a", "b"), False),
    ],
)
def test_a_breaker_counts_what_came_to_no_answer(problem: Exception, broken: bool) -> None:
    assert classify(problem).broken is broken


async def test_a_breaker_counts_a_5xx_and_no_4xx(provider: str) -> None:
    for status, broken in ((402, False), (429, False), (500, True)):
        assert (await found(by_httpx2, f"{provider}?status={status}")).broken is broken
