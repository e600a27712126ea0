"""An agent's connections: woken by a notice, its own in a forked child, and made anew when one is lost."""

from __future__ import annotations

import os
import threading
import warnings

from deedbox import Deedbox, user
from tests.support.shop import Shop, asks, charge

HELLO = [user("Charge cus_1 49.00")]
ONE = charge(customer="cus_1", cents=4900)


def _actions(shop: Shop) -> int:
    with shop.connect() as conn:
        row = conn.execute("SELECT count(*) FROM action").fetchone()
        assert row is not None
        return int(row[0])


def test_a_waiting_run_is_woken_by_the_finish(box: Deedbox, shop: Shop) -> None:
    run = box.run("r", messages=HELLO)
    turn = next(iter(run))
    with turn.transaction(asks(ONE)):
        pass
    waiting = threading.Thread(target=run.settle)
    waiting.start()
    with shop.hands() as hands:
        assert hands.do_all() == 1
    waiting.join(30)
    assert not waiting.is_alive()


def test_a_forked_child_has_connections_of_its_own(box: Deedbox, shop: Shop) -> None:  # I2 I4
    """As under a server that loads the application before it forks: two processes on one socket swap answers."""
    box.run("parent", messages=HELLO)
    children = []
    for _ in range(2):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # threads run in the parent: that is the case
            child = os.fork()
        if child == 0:
            for at in range(20):
                next(iter(box.run(f"{os.getpid()}-{at}", messages=HELLO))).commit(asks(ONE))
            os._exit(0)
        children.append(child)
    for at in range(20):
        next(iter(box.run(f"parent-{at}", messages=HELLO))).commit(asks(ONE))
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]
    assert _actions(shop) == 60


def test_an_agent_waits_out_a_lost_connection(box: Deedbox, shop: Shop) -> None:
    run = box.run("r", messages=HELLO)
    next(iter(run)).commit(asks(ONE))
    with shop.connect() as conn:
        conn.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'deedbox-agent'")
    with shop.hands() as hands:
        hands.do_all()
    run.settle()
    assert not run.journal.open


def test_a_reply_that_was_paid_for_meets_no_cut_connection(box: Deedbox, shop: Shop) -> None:
    """Postgres was restarted while the model thought: the pooled connections are dead and nobody has noticed."""
    run = box.run("r", messages=HELLO)
    turn = next(iter(run))
    with shop.connect() as conn:
        cut = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'deedbox-agent'"
        conn.execute(cut)
    with turn.transaction(asks(ONE)) as conn:
        conn.execute("SELECT 1")
    assert _actions(shop) == 1
