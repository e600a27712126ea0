"""The provider of the chaos: its books are right, whatever its mood."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.chaos.outside import Outside
from tests.chaos.provider import CHARGES, REFUNDS, TRANSFERS, Mood


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Outside]:
    with Outside(tmp_path / "books.sqlite") as outside:
        yield outside


def post(outside: Outside, path: str, about: str = "a", key: str | None = "k") -> httpx2.Response:
    headers = {} if key is None else {"Idempotency-Key": key}
    return httpx2.post(f"{outside.url}{path}", json={"about": about}, headers=headers, timeout=30)


def always(ill: str) -> Mood:
    ills: dict[str, Any] = {ill: 1.0}
    return replace(Mood(longest=0.01), **ills)


@pytest.mark.parametrize("path", [CHARGES, REFUNDS])
def test_a_key_is_one_effect_and_its_answer_is_replayed(outside: Outside, path: str) -> None:
    first, second = post(outside, path), post(outside, path)
    assert (first.status_code, second.status_code) == (201, 201)
    assert first.json() == second.json()
    assert "Idempotent-Replayed" not in first.headers
    assert second.headers["Idempotent-Replayed"] == "true"
    assert len(outside.books.effects()) == 1
    assert [request.did for request in outside.books.requests()] == ["effect", "replay"]


def test_a_key_with_another_body_is_refused(outside: Outside) -> None:
    post(outside, CHARGES)
    assert post(outside, CHARGES, about="b").status_code == 422
    assert len(outside.books.effects()) == 1


def test_a_forgotten_key_is_a_new_deed(outside: Outside) -> None:
    body = '{"about": "a"}'
    outside.books.do_once(REFUNDS, "a", "k", body, window=0)
    outside.books.do_once(REFUNDS, "a", "k", body, window=0)
    assert len(outside.books.effects()) == 2


def test_transfers_ignore_keys_and_can_be_looked_up(outside: Outside) -> None:
    ids = [post(outside, TRANSFERS).json()["id"] for _ in range(2)]
    found = httpx2.get(f"{outside.url}{TRANSFERS}", params={"reference": "k"})
    assert found.json() == {"found": ids}
    assert httpx2.get(f"{outside.url}{TRANSFERS}", params={"reference": "other"}).json() == {"found": []}
    assert [request.did for request in outside.books.requests()] == ["effect", "effect", "lookup", "lookup"]


@pytest.mark.parametrize(("ill", "status"), [("busy", 429), ("error_before", 500), ("stored", 500)])
def test_ills_without_an_effect(outside: Outside, ill: str, status: int) -> None:
    outside.mood(always(ill))
    assert post(outside, REFUNDS).status_code == status
    assert not outside.books.effects()


def test_a_stored_failure_is_replayed(outside: Outside) -> None:
    outside.mood(always("stored"))
    post(outside, REFUNDS)
    outside.mood(Mood())
    again = post(outside, REFUNDS)
    assert again.status_code == 500
    assert again.headers["Idempotent-Replayed"] == "true"
    assert not outside.books.effects()


@pytest.mark.parametrize("ill", ["late", "slow"])
def test_ills_that_only_take_time(outside: Outside, ill: str) -> None:
    outside.mood(always(ill))
    assert post(outside, CHARGES).status_code == 201
    assert len(outside.books.effects()) == 1


@pytest.mark.parametrize(("ill", "effects"), [("drop_before", 0), ("drop_after", 1)])
def test_ills_without_an_answer(outside: Outside, ill: str, effects: int) -> None:
    outside.mood(always(ill))
    with pytest.raises(httpx2.TransportError):
        post(outside, TRANSFERS)
    assert len(outside.books.effects()) == effects


def test_an_error_after_the_effect(outside: Outside) -> None:
    outside.mood(always("error_after"))
    assert post(outside, CHARGES).status_code == 500
    assert len(outside.books.effects()) == 1


def test_the_same_seed_is_the_same_ills() -> None:
    mood = Mood(busy=0.2, drop_after=0.2, late=0.2, seed=7)
    met = [mood.ill(f"r:{n}", 0) for n in range(100)]
    assert met == [mood.ill(f"r:{n}", 0) for n in range(100)]
    assert {ill for ill, _ in met} == {"", "busy", "drop_after", "late"}
    assert met != [Mood(busy=0.2, drop_after=0.2, late=0.2, seed=8).ill(f"r:{n}", 0) for n in range(100)]


def test_killed_it_forgets_nothing(outside: Outside) -> None:
    first = post(outside, CHARGES)
    outside.kill()
    outside.start()
    assert post(outside, CHARGES).json() == first.json()
    assert len(outside.books.effects()) == 1
