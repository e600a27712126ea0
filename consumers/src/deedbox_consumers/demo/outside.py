"""The world outside, as a process of its own: the payment provider and the model, over HTTP.

Run as `python -m deedbox_consumers.demo.outside BOOKS [PORT]`; it prints its port. It knows nothing of Deedbox, and
what it counted survives whatever is killed, itself included: it is in the file BOOKS.
"""

from __future__ import annotations

import argparse
import json
import socket
import sys
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from deedbox_consumers.demo import model
from deedbox_consumers.demo.provider import Provider

LOOPBACK = "127.0.0.1"


def app(provider: Provider) -> Starlette:
    """`POST /v1/charges` and `POST /v1/chat/completions`."""

    async def charges(request: Request) -> Response:
        key = request.headers.get("Idempotency-Key")
        answer = await run_in_threadpool(provider.charge, await request.body(), key)
        headers = {"Idempotent-Replayed": "true"} if answer.stored else {}
        return Response(answer.text, answer.status, headers, "application/json")

    async def completions(request: Request) -> Response:
        messages = (await request.json())["messages"]
        await run_in_threadpool(provider.note_asked, *model.place(messages))
        return JSONResponse(model.complete(messages))

    return Starlette(
        routes=[
            Route("/v1/charges", charges, methods=["POST"]),
            Route("/v1/chat/completions", completions, methods=["POST"]),
        ]
    )


def main() -> None:
    """Serve until stopped; the first line of the output is `{"port": …}`, printed once connections are taken."""
    parser = argparse.ArgumentParser(
        prog="python -m deedbox_consumers.demo.outside",
        description="A payment provider and a model on this machine: POST /v1/charges, POST /v1/chat/completions.",
    )
    parser.add_argument("books", metavar="BOOKS", type=Path, help="the provider's books, a SQLite file that it makes")
    parser.add_argument("port", metavar="PORT", type=int, nargs="?", default=0, help="default: a free one")
    asked = parser.parse_args()
    try:
        listener = socket.create_server((LOOPBACK, asked.port))
    except (OSError, OverflowError) as problem:
        parser.error(f"nothing can be served on port {asked.port}: {problem}")
    provider = Provider(asked.books)
    sys.stdout.write(json.dumps({"port": listener.getsockname()[1]}) + "\n")
    sys.stdout.flush()
    config = uvicorn.Config(app(provider), log_level="warning", access_log=False, lifespan="off")
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
