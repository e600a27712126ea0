"""The agent that most people write first: ask the model, call the tool, then save. As a process, for one order."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import psycopg

from deedbox.chat import openai_chat, user
from deedbox.signals import reach
from deedbox_consumers.demo.say import say
from deedbox_consumers.demo.shop import charge, find_order, mark, outside, sql, think


def main() -> None:
    """Play the order of the command line from where it was saved."""
    order_id = sys.argv[1]
    with psycopg.connect(os.environ["DEEDBOX_DATABASE_URL"], autocommit=True) as conn, outside() as http:
        order = find_order(conn, order_id)
        messages = [json.loads(text) for (text,) in conn.execute(sql["saved"], {"id": order_id})] or [user(order.ask)]
        while messages[-1]["role"] != "assistant":
            reply = think(http, messages, openai_chat.tools([charge]))
            say("decided", order_id)
            news: list[dict[str, Any]] = openai_chat.said(reply)
            for call in openai_chat.calls(reply):
                answer = http.post("/v1/charges", content=charge.parse(call.arguments).stored)
                news.append({"role": "tool", "tool_call_id": call.id, "content": answer.text})
                reach("after_effect")
            with conn.transaction():
                for n, message in enumerate(messages + news):
                    conn.execute(sql["save"], {"id": order_id, "n": n, "message": json.dumps(message)})
                mark(conn, order_id, "charged")
            messages += news
    say("closed", order_id)


if __name__ == "__main__":
    main()
