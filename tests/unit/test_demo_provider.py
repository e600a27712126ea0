"""The demo's payment provider keeps the rules of `Idempotency-Key` that the large providers keep."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from deedbox_consumers.demo import model
from deedbox_consumers.demo.outside import app
from deedbox_consumers.demo.provider import Provider


@pytest.fixture
def provider(tmp_path: Path) -> Provider:
    return Provider(tmp_path / "books.sqlite")


def body(**changes: object) -> bytes:
    return json.dumps({"order": "order-1", "customer": "cus_1", "cents": 4900} | changes).encode()


def test_without_a_key_every_request_charges(provider: Provider) -> None:
    assert [provider.charge(body(), None).status for _ in range(2)] == [201, 201]
    assert len(provider.charges()) == len(provider.requests()) == 2


def test_the_same_key_and_body_get_the_stored_answer(provider: Provider) -> None:
    first, again = provider.charge(body(), "k"), provider.charge(body(), "k")
    assert (again.status, again.text, again.stored) == (first.status, first.text, True)
    assert len(provider.charges()) == 1
    assert [request.stored for request in provider.requests()] == [False, True]


def test_the_same_body_written_otherwise_is_the_same_body(provider: Provider) -> None:
    provider.charge(body(), "k")
    assert provider.charge(b'{"cents": 4900, "customer": "cus_1",  "order": "order-1"}', "k").stored


@pytest.mark.parametrize("change", [{"cents": 5000}, {"customer": "cus_2"}, {"order": "order-2"}])
def test_the_same_key_with_another_body_is_refused(provider: Provider, change: dict[str, object]) -> None:
    provider.charge(body(), "k")
    assert provider.charge(body(**change), "k").status == 422
    assert len(provider.charges()) == 1
    assert provider.charge(body(), "k").status == 201


def test_another_key_is_another_charge(provider: Provider) -> None:
    provider.charge(body(), "k")
    provider.charge(body(), "l")
    assert [charge.key for charge in provider.charges()] == ["k", "l"]


def test_a_declined_card_stays_declined_under_its_key(provider: Provider) -> None:
    assert [provider.charge(body(customer="cus_declined"), "k").status for _ in range(2)] == [402, 402]
    assert provider.requests()[1].stored
    assert not provider.charges()


@pytest.mark.parametrize(
    "bad",
    [
        *(b"", b"[]", b"{", b'"x"', b'{"order": "order-1"}', body(customer=1)),
        *(body(cents=wrong) for wrong in (0, -1, "1", 1.5, True)),
    ],
)
def test_a_body_that_cannot_be_read_stores_nothing(provider: Provider, bad: bytes) -> None:
    assert provider.charge(bad, "k").status == 400
    assert provider.charge(body(), "k").status == 201
    assert len(provider.requests()) == 2


@pytest.mark.parametrize("key", ["", "k" * 256])
def test_a_key_of_a_wrong_length_is_refused(provider: Provider, key: str) -> None:
    assert provider.charge(body(), key).status == 400
    assert not provider.charges()


def test_requests_at_once_with_one_key_charge_once(provider: Provider) -> None:
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda _: provider.charge(body(), "k"), range(24)))
    assert {answer.text for answer in answers} == {answers[0].text}
    assert len(provider.charges()) == 1
    assert len(provider.requests()) == 24


def test_the_books_outlive_the_process(provider: Provider) -> None:
    provider.charge(body(), "k")
    provider.note_asked("order-1", 1)
    after = Provider(provider.path)
    assert after.charge(body(), "k").stored
    assert [(ask.order, ask.step) for ask in after.asked()] == [("order-1", 1)]


def test_over_http_the_key_travels_in_its_header(provider: Provider) -> None:
    with TestClient(app(provider)) as http:
        first = http.post("/v1/charges", content=body(), headers={"Idempotency-Key": "k"})
        again = http.post("/v1/charges", content=body(), headers={"Idempotency-Key": "k"})
    assert first.json() == again.json()
    assert "Idempotent-Replayed" not in first.headers
    assert again.headers["Idempotent-Replayed"] == "true"


def test_the_model_notes_at_which_position_of_a_conversation_it_is_asked(provider: Provider) -> None:
    messages = [{"role": "user", "content": model.ask("order-7", "cus_1", 4905)}]
    with TestClient(app(provider)) as http:
        reply = http.post("/v1/chat/completions", json={"messages": messages}).json()["choices"][0]["message"]
        (call,) = reply["tool_calls"]
        messages += [reply, {"role": "tool", "tool_call_id": call["id"], "content": "{}"}]
        done = http.post("/v1/chat/completions", json={"messages": messages}).json()["choices"][0]["message"]
    assert json.loads(call["function"]["arguments"]) == {"order": "order-7", "customer": "cus_1", "cents": 4905}
    assert "tool_calls" not in done
    assert [(ask.order, ask.step) for ask in provider.asked()] == [("order-7", 1), ("order-7", 2)]
