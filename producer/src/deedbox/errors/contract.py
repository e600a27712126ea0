"""What can be wrong with a tool, its arguments, its bytes, or a model's reply."""

from __future__ import annotations

from datetime import timedelta

from deedbox.errors.base import BadInput, NotReady


class InvalidKey(BadInput):
    """The key {key!r} is not one of ours: keys read run:step:call, as in order-8812:1:0."""

    key: str


class InvalidRunId(BadInput):
    """The run id {run_id!r} cannot be used: give 1 to 128 characters of A-Z a-z 0-9 . _ ~ -"""

    run_id: str


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


class TooLong(BadInput):
    """{what} of {given} is more than the ledger can reckon with: give at most 3650 days."""

    what: str
    given: timedelta


class EffectsDoNotJoin(BadInput):
    """{one} and {other} cannot both hold for one tool: what joins is provider_key(...) | probe()."""

    one: str
    other: str


class InvalidSettling(BadInput):
    """A request cannot have settled {settle_after} before its deadline: give settle_after=timedelta(0) or more."""

    settle_after: timedelta


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


class NoTools(BadInput):
    """No tools were found in {module}: {why}."""

    module: str
    why: str


class NotATool(BadInput):
    """tools= takes a list of deedbox.Tool, not {given}: define each with Tool(name, args=…, result=…, effect=…)."""

    given: str


class ToolTwice(BadInput):
    """Two of the tools are called {name}, and a reply could mean either: give each of them once, with a name and title of its own."""

    name: str


class NotAChat(BadInput):
    """chat= takes a dialect, not {given}: give deedbox.openai_chat, deedbox.openai_responses or deedbox.anthropic_chat."""

    given: str


class NotMessages(BadInput):
    """messages= takes a list of messages, each a mapping or a client's object, not {given}: write messages=[user("…")]."""

    given: str


class ResultDoesNotFit(BadInput):
    """This is no result of {tool}, and nothing was written: {problems}."""

    tool: str
    problems: str


class NoSuchTool(BadInput):
    """There is no tool {tool} in schema {schema}: `deedbox tools list` lists them."""

    tool: str
    schema: str


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
