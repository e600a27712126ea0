"""Kafka Connect's REST interface, as far as one connector needs it."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import httpx2

from deedbox.errors import ConnectRefused, ConnectUnreachable
from deedbox_debezium.patience import attempts

if TYPE_CHECKING:
    from collections.abc import Mapping

log: logging.Logger = logging.getLogger(__name__)

ANSWER_WITHIN: Final = 90.0  # seconds; Connect itself gives up on a request after 90
PATIENCE: Final = 30.0  # seconds to go on asking a worker that does not answer or is rebalancing
MASKED: Final = "resolved from the config provider"
AGAIN: Final = {httpx2.codes.CONFLICT, httpx2.codes.SERVICE_UNAVAILABLE}  # a rebalance is going on


class _Rebalancing(Exception):
    """The worker asks to come again."""


@dataclass(frozen=True)
class Task:
    """One task of a connector; the trace is the Java stack trace of its failure, else empty."""

    id: int
    state: str
    trace: str


@dataclass(frozen=True)
class ConnectorState:
    """What Connect says about a connector."""

    state: str
    trace: str
    tasks: tuple[Task, ...]

    @property
    def running(self) -> bool:
        """Whether the connector and at least one task run. It is no proof of life: freshness is."""
        return self.state == "RUNNING" and bool(self.tasks) and all(task.state == "RUNNING" for task in self.tasks)

    @property
    def failure(self) -> str | None:
        """The innermost reason of the first failure, in one line, or None."""
        traces = (self.trace, *(task.trace for task in self.tasks))
        return next((reason(trace) for trace in traces if trace), None)


def reason(trace: str) -> str:
    """The last cause of a Java stack trace, which is what went wrong first, without the package of its class."""
    causes = [line for line in trace.splitlines() if line.startswith("Caused by: ")]
    text = causes[-1].removeprefix("Caused by: ") if causes else trace.partition("\n")[0]
    kind, colon, message = text.partition(": ")
    return f"{kind.rpartition('.')[2]}{colon}{message}".strip()


class Rest:
    """One Connect cluster, asked with retries while it cannot be reached or is rebalancing.

    Raises ConnectUnreachable when that lasts, and ConnectRefused with Connect's words for any other refusal.
    """

    def __init__(self, url: str, *, patience: float = PATIENCE) -> None:
        self._url = url.rstrip("/")
        self._patience = patience

    def problems(self, config: Mapping[str, str]) -> list[str]:
        """What is wrong with a configuration, one line per setting; empty if nothing is.

        Asked apart, because Connect 4.4 answers a PUT of an invalid Debezium 3.6.1 configuration with a Java
        NullPointerException in place of the reasons.
        """
        kind = config["connector.class"].rpartition(".")[2]
        answer = self._ask("PUT", f"/connector-plugins/{kind}/config/validate", dict(config))
        values = [entry["value"] for entry in answer["configs"] if entry.get("value")]
        return [f"{value['name']}: {_unmasked(problem, config)}" for value in values for problem in value["errors"]]

    def config(self, name: str) -> dict[str, str] | None:
        """The configuration that Connect holds, or None if there is no such connector."""
        found: dict[str, str] | None = self._ask("GET", f"/connectors/{name}/config", missing=True)
        return found

    def put(self, name: str, config: Mapping[str, str]) -> None:
        """Create or change the connector."""
        self._ask("PUT", f"/connectors/{name}/config", dict(config))

    def state(self, name: str) -> ConnectorState | None:
        """How the connector and its tasks are, or None if there is no such connector."""
        answer = self._ask("GET", f"/connectors/{name}/status", missing=True)
        if answer is None:
            return None
        tasks = tuple(Task(task["id"], task["state"], task.get("trace", "")) for task in answer["tasks"])
        return ConnectorState(answer["connector"]["state"], answer["connector"].get("trace", ""), tasks)

    def restart(self, name: str, *, only_failed: bool) -> None:
        """Restart the connector and its tasks."""
        self._ask("POST", f"/connectors/{name}/restart?includeTasks=true&onlyFailed={str(only_failed).lower()}")

    def stop(self, name: str) -> None:
        """End its tasks; the configuration stays."""
        self._ask("PUT", f"/connectors/{name}/stop")

    def forget_offsets(self, name: str) -> None:
        """Forget how far it has read; it must be stopped."""
        self._ask("DELETE", f"/connectors/{name}/offsets")

    def delete(self, name: str) -> None:
        """Delete the connector."""
        self._ask("DELETE", f"/connectors/{name}", missing=True)

    def _ask(self, method: str, path: str, body: object = None, *, missing: bool = False) -> Any:
        problem: Exception | None = None
        for number in attempts(self._patience):
            try:
                return self._once(method, path, body, missing=missing)
            except (httpx2.TransportError, _Rebalancing) as latest:
                problem = latest
                log.warning("Kafka Connect at %s does not answer yet (%s; attempt %d)", self._url, latest, number)
        raise ConnectUnreachable(url=self._url, reason=problem, seconds=self._patience) from problem

    def _once(self, method: str, path: str, body: object, *, missing: bool) -> Any:
        # trust_env off: Connect is on this machine or in this network, never behind a proxy; reading the system's
        # certificates takes longer than the answer, so only where they are needed
        secure = self._url.startswith("https:")
        with httpx2.Client(base_url=self._url, timeout=ANSWER_WITHIN, trust_env=False, verify=secure) as client:
            answer = client.request(method, path, json=body)
        if missing and answer.status_code == httpx2.codes.NOT_FOUND:
            return None
        if answer.status_code in AGAIN:
            raise _Rebalancing(_message(answer))
        if answer.is_error:
            raise ConnectRefused(asked=f"{method} {path}", status=answer.status_code, reason=_message(answer))
        return answer.json() if answer.content else None


def _unmasked(problem: str, config: Mapping[str, str]) -> str:
    """Connect hides the reason wherever a value came from its environment; for a database that is nearly always one."""
    if MASKED not in problem:
        return problem
    return (
        f"Connect could not log in to the database. It used host {config['database.hostname']}, port "
        f"{config['database.port']}, database {config['database.dbname']}, user {config['database.user']} and its "
        f"password {config['database.password'] if config['database.password'].startswith('${') else '(as given)'}; "
        "the values stand in the worker's environment, the password must be the one `deedbox init --roles` was given"
    )


def _message(answer: httpx2.Response) -> str:
    try:
        return str(answer.json()["message"]).strip()
    except (ValueError, KeyError):
        return answer.text.strip()
