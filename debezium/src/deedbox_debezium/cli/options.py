"""Options that the pipeline's commands share."""

from __future__ import annotations

from typing import Annotated

import typer

Kafka = Annotated[str | None, typer.Option(help="Bootstrap servers; default: DEEDBOX_KAFKA, or this folder's stack.")]
ConnectUrl = Annotated[
    str | None, typer.Option(help="REST of Kafka Connect; default: DEEDBOX_CONNECT_URL, or this folder's stack.")
]
