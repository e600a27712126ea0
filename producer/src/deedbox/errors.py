"""Every error that Deedbox raises, and what to do about it.

    DeedboxError
    ├── BadInput            what was given cannot be taken; nothing was written
    ├── StepTaken           somebody else committed this step; nothing of yours was written
    ├── PlanDivergence      a key was asked for something else than it was committed for
    ├── CommitRefused       the ledger does not take this step now
    ├── NotReady            the database or a service is not as it must be
    └── HandlerVerdict      what a handler raises to say how its attempt ended

The docstring of each class is its message; the facts in braces are its attributes.
"""

from __future__ import annotations

import inspect
from datetime import timedelta


class DeedboxError(Exception):
    """{detail}"""

    def __init__(self, **facts: object) -> None:
        self.facts = facts
        self.__dict__.update(facts)
        template = " ".join((inspect.getdoc(type(self)) or "{detail}").split())
        super().__init__(template.format(**facts))

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.facts)


def _rebuild(kind: type[DeedboxError], facts: dict[str, object]) -> DeedboxError:
    return kind(**facts)


class BadInput(DeedboxError):
    """{detail}"""


class InvalidRunId(BadInput):
    """The run id {run_id!r} cannot be used: give 1 to 128 characters of A-Z a-z 0-9 . _ ~ -"""

    run_id: str


class InvalidKey(BadInput):
    """The key {key!r} is not one of ours: keys read run:step:call, as in order-8812:1:0."""

    key: str


class InvalidTool(BadInput):
    """The tool {tool!r} cannot be defined: {why}"""

    tool: str
    why: str


class InvalidToolName(BadInput):
    """The tool name {name!r} cannot be used: it names a topic and a group, so give 1 to 63 characters of a-z 0-9 _
    that begin with a letter, and put what the model should read into title=."""

    name: str


class InvalidEffect(BadInput):
    """A provider that remembers keys for {window} leaves nothing after the margin of {margin}: give a longer window,
    or say `repeatable` or `unrepeatable`."""

    window: timedelta
    margin: timedelta


class EffectNotSupported(BadInput):
    """The tool {tool!r} is declared {effect}, which this release does not perform yet: use provider_key(window) or
    repeatable."""

    tool: str
    effect: str


class UnsupportedType(BadInput):
    """{where} cannot travel as {type}: {instead}"""

    where: str
    type: str
    instead: str


class StrictSchema(BadInput):
    """The tool {tool!r} is strict, but {where} {why}: change it, or leave strict out (Deedbox checks the arguments
    either way)."""

    tool: str
    where: str
    why: str


class InvalidArguments(BadInput):
    """The arguments of {tool} do not fit: {problems}"""

    tool: str
    problems: str


class UnstorableText(BadInput):
    """{where} holds {what}, which Postgres cannot store: remove it, or send it base64-encoded."""

    where: str
    what: str


class UnstorableNumber(BadInput):
    """{where} is {what}, which cannot be stored exactly: bound the field, or send it as text."""

    where: str
    what: str


class UnencodableValue(BadInput):
    """{where} cannot be encoded: {why}"""

    where: str
    why: str


class PayloadTooLarge(BadInput):
    """The arguments of {tool} take {size} bytes of the {limit} that one call may: store the data elsewhere and pass
    where it is."""

    tool: str
    size: int
    limit: int


class UnknownSchema(BadInput):
    """The payload was written with schema {hex}, which is not known here: run `deedbox tools apply` for the writer's
    tools, then read it again."""

    fingerprint: bytes
    hex: str


class BadPayload(BadInput):
    """The payload cannot be read as {model}: {reason}"""

    model: str
    reason: str


class UnreadableStored(BadInput):
    """What is stored no longer fits {model}: {problems}. Give the fields that were added a default, and keep those
    that were required."""

    model: str
    problems: str


class UnreadableReply(BadInput):
    """This is not a reply of {dialect}: {why}. Give turn.commit the client's reply object or its JSON, whole."""

    dialect: str
    why: str


class WrongAnswers(BadInput):
    """The reply asks for {asked} calls and {given} answers were given: a model must see exactly one for each."""

    asked: int
    given: int


class NotReady(DeedboxError):
    """{detail}"""


class ExtraMissing(NotReady):
    """{what} needs more packages than are installed: pip install '{extra}'"""

    what: str
    extra: str


class NoLogicalDecoding(NotReady):
    """Database {database} runs with wal_level={found} and Debezium needs logical: ALTER SYSTEM SET wal_level = 'logical', restart PostgreSQL, try again. Without Kafka (source poll) it is not needed."""

    database: str
    found: str


class NoPublication(NotReady):
    """There is no publication {publication} for {schema}.outbox: it is made by `deedbox init`; if it was dropped, drop the slot too and restore it."""

    publication: str
    schema: str


class NoConnectRole(NotReady):
    """Role {role} cannot log in, replicate and read {schema}.outbox: set DEEDBOX_CONNECT_PASSWORD and run `deedbox init --roles`."""

    role: str
    schema: str


class SlotInUse(NotReady):
    """Replication slot {slot} is still read by somebody: end that reader, then try again."""

    slot: str


class ConnectUnreachable(NotReady):
    """Kafka Connect at {url} did not answer for {seconds:.0f} s ({reason}): start it, or give its address with --connect-url or DEEDBOX_CONNECT_URL."""

    url: str
    reason: object
    seconds: float


class ConnectRefused(NotReady):
    """Kafka Connect answered {status} to {asked}: {reason}"""

    asked: str
    status: int
    reason: str


class ConnectorInvalid(NotReady):
    """Kafka Connect does not accept connector {connector}; nothing was changed: {problems}"""

    connector: str
    problems: str


class ConnectorFailed(NotReady):
    """Connector {connector} does not run: {reason}. Mend that, then `deedbox connector restart`; `deedbox connector status` shows more."""

    connector: str
    reason: str


class NoConnector(NotReady):
    """There is no connector {connector}: put it there with `deedbox connector apply`."""

    connector: str


class KafkaUnreachable(NotReady):
    """No Kafka broker answered at {kafka} for {seconds:.0f} s ({reason}): start it, or give its address with --kafka or DEEDBOX_KAFKA."""

    kafka: str
    reason: object
    seconds: float


class TopicRefused(NotReady):
    """Kafka did not create topic {topic}: {reason}"""

    topic: str
    reason: str


class JarRefused(NotReady):
    """{jar} cannot be used: {reason}. Nothing of it was kept; check the network and any mirror, then start again."""

    jar: str
    reason: str


class StackFailed(NotReady):
    """{part} of the local stack did not come up: {reason} Its log: {log}. Start again, or empty it with `deedbox stack reset`."""

    part: str
    reason: str
    log: str


class MissingSetting(BadInput):
    """No {name} is known: give {option}, set {variable}, or start a local stack here with `deedbox stack up`."""

    name: str
    option: str
    variable: str


class WrongSetting(BadInput):
    """The {name} {value!r} cannot be used: a lower-case letter, then at most 40 of a-z 0-9 _"""

    name: str
    value: str


class NotMigrated(NotReady):
    """Schema {schema} is at migration {found} and this version needs {wanted}: run `deedbox init`."""

    schema: str
    found: int | str
    wanted: int


class MigrationChanged(NotReady):
    """Migration {name} was applied to schema {schema} with another text: this is a development version; start from an empty schema."""

    name: str
    schema: str


class UnknownRun(BadInput):
    """There is no run {run_id}: open it with messages=[...], or check the id."""

    run_id: str


class UnknownCall(BadInput):
    """Run {run_id} has no call {key}, as far as it was read: take the call that commit returned, or read the run again."""

    run_id: str
    key: str | None


class RunTaken(BadInput):
    """Run {run_id} was opened with other messages: leave messages away to resume it, or choose another run id."""

    run_id: str


class UnknownTool(BadInput):
    """The tool {tool} is not one of this box: add it to tools=[...]."""

    tool: str


class ToolNotApplied(NotReady):
    """The tool {tool} is {state} in schema {schema}: run `deedbox tools apply MODULE` with the module that defines it."""

    tool: str
    state: str
    schema: str


class ToolChanged(BadInput):
    """The {part} of tool {tool} changed in a way that calls recorded earlier cannot follow: {reasons}. Give new fields a default and keep old ones, or define a new tool."""

    tool: str
    part: str
    reasons: str


class StepTaken(DeedboxError):
    """Step {step} of run {run_id} was committed by somebody else: nothing of this transaction was written, read on."""

    run_id: str
    step: int


class PlanDivergence(DeedboxError):
    """The key {key} was committed as {stored} and is now asked for {asked}: resume from the recorded step, or fork the run."""

    key: str
    stored: str
    asked: str


class CommitRefused(DeedboxError):
    """{detail}"""


class StepGap(CommitRefused):
    """Step {step} of run {run_id} cannot be committed, since the step before it does not exist: read the run again."""

    run_id: str
    step: int


class RunClosed(CommitRefused):
    """Run {run_id} takes no more steps: it was ended or restored. Start another run."""

    run_id: str


class Unsettled(CommitRefused):
    """Call {key} of run {run_id} is {status}: nothing further is decided until it is settled. Look at it with `deedbox calls show {key}`."""

    run_id: str
    key: str
    status: str


class RepeatedCall(CommitRefused):
    """The call {key} of run {run_id} is open and asks for the very same: wait for its outcome, or say again=True."""

    run_id: str
    key: str


class TurnLeft(CommitRefused):
    """Turn {step} of run {run_id} ended without a committed step: commit in it, and let your transaction end before the loop goes on."""

    run_id: str
    step: int


class NoTransaction(BadInput):
    """The connection given as on= is {state}: {remedy}."""

    state: str
    remedy: str


class NotAHandle(BadInput):
    """on= takes {wanted}, not {given}."""

    wanted: str
    given: str


class NoTools(BadInput):
    """No tools were found in {module}: {why}."""

    module: str
    why: str


class NoSuchCall(BadInput):
    """There is no call {key}: `deedbox runs show RUN` lists the calls of a run."""

    key: str


class NoHandler(BadInput):
    """Nothing here performs the tool {tool}: add a function with @handlers.handle({tool}), or leave the tool out with tools=[...]."""

    tool: str


class HandlerTaken(BadInput):
    """The tool {tool} has the handler {there} already: one tool, one handler."""

    tool: str
    there: str


class HandlerVerdict(DeedboxError):
    """{detail}"""


class RetryLater(HandlerVerdict):
    """The tool is to be tried again after {after}."""

    after: timedelta

    def __init__(self, after: timedelta | float) -> None:
        super().__init__(after=after if isinstance(after, timedelta) else timedelta(seconds=after))


class Refusal(HandlerVerdict):
    """The provider refused ({code}): {message}"""

    code: str
    message: str

    def __init__(self, code: str, message: str) -> None:
        super().__init__(code=code, message=message)


class OutcomeUnknown(HandlerVerdict):
    """It is not known whether it happened: {reason}"""

    reason: str

    def __init__(self, reason: str) -> None:
        super().__init__(reason=reason)
