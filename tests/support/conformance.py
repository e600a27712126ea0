"""What every source of calls must do: the same tests for poll (on Postgres alone) and kafka (on the whole pipeline)."""

from __future__ import annotations

import contextlib
import threading
from datetime import timedelta
from typing import Any

from deedbox import Deedbox
from deedbox_consumers import Attempt, CannotTell, Happened, OutcomeUnknown, RetryLater, Worker
from deedbox_consumers.source import SourceName
from tests.support.fleet import Provider, decide, outcomes, status, wait_until
from tests.support.shop import Receipt, Shop, charge, lookup, mail, refund


class SourceConformance:
    """The tests; a subclass says which source, and has fixtures `shop`, `box` and `options` for the Worker."""

    source: SourceName

    def worker(self, shop: Shop, provider: Provider, options: dict[str, Any], **more: Any) -> Worker:
        """A worker that stands alone: nothing wakes it but its source."""
        given = {"database_url": shop.url, "schema": shop.schema, "source": self.source, **options, **more}
        return Worker(None, given.pop("handlers", None) or provider.handlers(), **given)

    def test_performs_what_is_committed_once_and_the_result_comes_back(  # I1 I6
        self, shop: Shop, box: Deedbox, options: dict[str, Any]
    ) -> None:
        provider = Provider()
        with self.worker(shop, provider, options):
            run = decide(box, *(charge(customer="c", cents=cents) for cents in range(1, 21)), lookup(order="o"))
            assert set(outcomes(box, run)) == {"done"}
        assert [call.result for call in run.journal.calls.values()] == [
            *({"id": f"ch_{cents}"} for cents in range(1, 21)),
            {"status": "paid"},
        ]
        keys = {f"{run.id}:1:{call}" for call in range(21)}
        assert {key.split(":", 1)[1] for key in provider.requests} == keys
        assert set(provider.effects.values()) == {1}

    def test_performs_what_was_committed_while_no_worker_ran(  # I5
        self, shop: Shop, box: Deedbox, options: dict[str, Any]
    ) -> None:
        provider = Provider()
        run = decide(box, *(charge(customer="c", cents=cents) for cents in range(1, 11)))
        with self.worker(shop, provider, options):
            assert outcomes(box, run) == ["done"] * 10
        assert set(provider.effects.values()) == {1}

    def test_one_order_key_is_in_order(self, shop: Shop, box: Deedbox, options: dict[str, Any]) -> None:
        provider = Provider()
        with self.worker(shop, provider, options):
            run = decide(box, *(mail(to=to, text=str(text)) for text in range(8) for to in ("a@x", "b@x")))
            assert set(outcomes(box, run)) == {"done"}
        positions = [int(key.rsplit(":", 1)[1]) for key in provider.requests]
        assert [at for at in positions if at % 2 == 0] == list(range(0, 16, 2))
        assert [at for at in positions if at % 2 == 1] == list(range(1, 16, 2))

    def test_a_lost_answer_is_asked_about_until_somebody_knows(  # I5 I7
        self, shop: Shop, box: Deedbox, options: dict[str, Any]
    ) -> None:
        provider, said = Provider(), iter([CannotTell("it is down")])

        def lose(_args: Any, _attempt: Attempt) -> Any:
            raise OutcomeUnknown("no answer")

        def say(_args: Any, attempt: Attempt) -> Any:
            return next(said, Happened(Receipt(id=attempt.key)))

        provider.on |= {"refund": lose, "refund?": say}
        with Deedbox(shop.url, tools=[refund], schema=shop.schema) as bank, shop.connect() as conn:
            with self.worker(shop, provider, options, handlers=provider.money(), tools=["refund"]):
                run = decide(bank, refund(customer="c", cents=1))
                wait_until(lambda: status(conn, run)[0] == "done")
            emitted = "SELECT type FROM outbox WHERE key = %s AND type <> 'result' ORDER BY id"
            assert conn.execute(emitted, [f"{run.id}:1:0"]).fetchall() == [("call",), ("probe",)]
        assert len(provider.requests) == 1
        assert len(provider.probes) == 2

    def test_what_is_put_off_comes_again_under_the_same_key(  # I6
        self, shop: Shop, box: Deedbox, options: dict[str, Any]
    ) -> None:
        provider = Provider()

        def once_later(_: object, attempt: Any) -> None:
            if attempt.number == 1:
                raise RetryLater(timedelta(milliseconds=1))

        provider.on[charge.name] = once_later
        with self.worker(shop, provider, options):
            assert outcomes(box, decide(box, charge(customer="c", cents=1))) == ["done"]
        assert len(provider.requests) == 2
        assert len(provider.effects) == 1

    def test_two_workers_share(self, shop: Shop, box: Deedbox, options: dict[str, Any]) -> None:  # I8
        provider = Provider()
        with self.worker(shop, provider, options), self.worker(shop, provider, options):
            runs = [decide(box, *(charge(customer="c", cents=cents) for cents in range(1, 26))) for _ in range(4)]
            for run in runs:
                assert outcomes(box, run) == ["done"] * 25
        assert len(provider.effects) == 100
        assert set(provider.effects.values()) == {1}

    def test_a_worker_that_stops_in_the_middle_leaves_nothing_behind(  # I5
        self, shop: Shop, box: Deedbox, options: dict[str, Any]
    ) -> None:
        provider = Provider()
        some = threading.Semaphore(0)

        def tell(*_: object) -> None:
            some.release()

        provider.on[charge.name] = tell
        runs = [decide(box, *(charge(customer="c", cents=cents) for cents in range(1, 101))) for _ in range(3)]
        with self.worker(shop, provider, options):
            some.acquire(timeout=60)
        with shop.connect() as conn:
            assert conn.execute("SELECT count(*) FROM outcome WHERE status = 'running'").fetchone() == (0,)
        with self.worker(shop, provider, options):
            for run in runs:
                assert outcomes(box, run) == ["done"] * 100
        assert len(provider.effects) == 300
        assert set(provider.effects.values()) == {1}

    def test_a_worker_of_one_tool_leaves_the_others_alone(
        self, shop: Shop, box: Deedbox, options: dict[str, Any]
    ) -> None:
        provider = Provider()
        with contextlib.ExitStack() as workers:
            workers.enter_context(self.worker(shop, provider, options, tools=["read_order"]))
            mails, orders = decide(box, mail(to="a@x", text="hi")), decide(box, lookup(order="o"))
            assert outcomes(box, orders) == ["done"]
            assert len(provider.requests) == 1
            workers.enter_context(self.worker(shop, provider, options, tools=["send_mail"]))
            assert outcomes(box, mails) == ["done"]

    def test_a_paused_tool_waits_and_stops_no_other(self, shop: Shop, box: Deedbox, options: dict[str, Any]) -> None:
        provider = Provider()
        with shop.connect() as conn, self.worker(shop, provider, options):
            conn.execute("UPDATE tool SET paused = true WHERE name = 'charge_customer'")
            paused, going = decide(box, charge(customer="c", cents=1)), decide(box, lookup(order="o"))
            assert outcomes(box, going) == ["done"]
            assert provider.requests == [f"{self.box_id(shop)}:{going.id}:1:0"]
            conn.execute("UPDATE tool SET paused = false")
            assert outcomes(box, paused) == ["done"]

    def test_its_worker_is_known_to_the_ledger_while_it_lives(
        self, shop: Shop, box: Deedbox, options: dict[str, Any]
    ) -> None:
        provider = Provider()
        with shop.connect() as conn:
            with self.worker(shop, provider, options):
                assert conn.execute("SELECT source, cardinality(tools) FROM worker").fetchall() == [(self.source, 3)]
            wait_until(lambda: conn.execute("SELECT count(*) FROM worker").fetchone() == (0,))

    def box_id(self, shop: Shop) -> str:
        """The box's id."""
        with shop.connect() as conn:
            row = conn.execute("SELECT id FROM box").fetchone()
            assert row is not None
            return str(row[0])
