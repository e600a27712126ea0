"""The agent on Deedbox, as a process: each order is a run of its own.

`agent ORDER… [--pause SECONDS]`: the orders are begun `--pause` seconds after each other, each in a thread.
"""

from __future__ import annotations

import argparse
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import httpx2

from deedbox import Deedbox, user
from deedbox_consumers.demo.say import say
from deedbox_consumers.demo.shop import charge, find_order, mark, outside, think


def serve(box: Deedbox, http: httpx2.Client, order_id: str) -> None:
    """Play one order to its end."""
    with box.connection() as conn:
        order = find_order(conn, order_id)
    run = box.run(order.id, messages=[user(order.ask)])
    for turn in run:
        if turn.number > 1:
            say("read", order.id)
        reply = think(http, turn.messages, box.tools)
        say("decided", order.id)
        with turn.transaction(reply) as conn:
            mark(conn, order.id, "charging" if turn.number == 1 else "charged")
    say("closed", order.id)


def main() -> None:
    """Serve the orders of the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("orders", nargs="+")
    parser.add_argument("--pause", type=float, default=0.0)
    words = parser.parse_args()
    with Deedbox(tools=[charge]) as box, outside() as http, ThreadPoolExecutor(len(words.orders)) as threads:
        ends = []
        for at, order in enumerate(words.orders):
            if at:
                time.sleep(words.pause)
            ends.append(threads.submit(partial(serve, box, http, order)))
        for end in ends:
            end.result()


if __name__ == "__main__":
    main()
