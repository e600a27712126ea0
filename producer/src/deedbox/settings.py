"""Where the parts of a box are: from options, environment, or what `deedbox stack up` left in this folder."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict

from deedbox.errors import BrokenSettings, MissingSetting, WrongDatabaseUrl, WrongSetting

LOCAL = Path(".deedbox/settings.json")  # in the working directory or one above it
_NAME = re.compile(r"[a-z][a-z0-9_]{0,40}")


@dataclass(frozen=True)
class Settings:
    """Addresses and names.

    database_url   libpq URL of the ledger's Postgres     DEEDBOX_DATABASE_URL
    schema         of the ledger (default `deedbox`)      DEEDBOX_SCHEMA
    prefix         of topics, groups, slot, publication and connector (default: the schema)   DEEDBOX_PREFIX
    kafka          bootstrap servers                      DEEDBOX_KAFKA
    connect_url    REST of Kafka Connect                  DEEDBOX_CONNECT_URL
    connect_password  of the connector's database role    DEEDBOX_CONNECT_PASSWORD
    """

    database_url: str | None = field(default=None, repr=False)  # it may hold a password
    schema: str = "deedbox"
    prefix: str = "deedbox"
    kafka: str | None = None
    connect_url: str | None = None
    connect_password: str | None = field(default=None, repr=False)

    @classmethod
    def load(
        cls,
        database_url: str | None = None,
        schema: str | None = None,
        prefix: str | None = None,
        kafka: str | None = None,
        connect_url: str | None = None,
    ) -> Settings:
        """Fill what is not given from the environment, then from `.deedbox/settings.json` here or above.

        Raises WrongSetting, BrokenSettings.
        """
        local = _local()

        def find(name: str, given: str | None) -> str | None:
            return given or os.environ.get(f"DEEDBOX_{name.upper()}") or local.get(name)

        schema = find("schema", schema) or "deedbox"
        prefix = find("prefix", prefix) or schema
        check_name("schema", schema)
        check_name("prefix", prefix)
        return cls(
            find("database_url", database_url),
            schema,
            prefix,
            find("kafka", kafka),
            find("connect_url", connect_url),
            find("connect_password", None),
        )

    def need(self, name: str) -> str:
        """The setting `name`, or MissingSetting, which says where to give it; raises WrongDatabaseUrl, too."""
        value: str | None = getattr(self, name)
        if not value:
            raise MissingSetting(name=name, option="--" + name.replace("_", "-"), variable=f"DEEDBOX_{name.upper()}")
        if name == "database_url":
            check_url(value)
        return value


def _local() -> dict[str, str]:
    """What the nearest local stack left; a file of somebody else's is none of ours."""
    for folder in (Path.cwd(), *Path.cwd().parents):
        path = folder / LOCAL
        if path.is_file() and path.stat().st_uid == os.geteuid():
            try:
                return dict(json.loads(path.read_text("utf-8")))
            except (ValueError, TypeError) as problem:
                raise BrokenSettings(path=path, problem=problem) from problem
    return {}


def check_url(url: str) -> None:
    """Raise WrongDatabaseUrl for what is neither a URL of Postgres nor a list of name=value."""
    try:
        ports = str(conninfo_to_dict(url).get("port") or "")
    except UnicodeEncodeError:
        raise WrongDatabaseUrl(problem="it holds bytes that are no text") from None
    except psycopg.ProgrammingError as problem:
        raise WrongDatabaseUrl(problem=" ".join(str(problem).split())) from None
    if not all(port.isdecimal() for port in ports.split(",") if port):
        raise WrongDatabaseUrl(problem=f"its port is {ports!r}")


def check_name(name: str, value: str) -> None:
    """Raise WrongSetting for a schema or prefix that not every part could spell."""
    if not _NAME.fullmatch(value):
        raise WrongSetting(name=name, value=value)
