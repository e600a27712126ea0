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

from deedbox.errors.base import BadInput, CommitRefused, DeedboxError, HandlerVerdict, NotReady
from deedbox.errors.contract import (
    BadPayload,
    EffectNotSupported,
    InvalidArguments,
    InvalidEffect,
    InvalidKey,
    InvalidRunId,
    InvalidTool,
    InvalidToolName,
    NoTools,
    PayloadTooLarge,
    StrictSchema,
    ToolChanged,
    ToolNotApplied,
    UnencodableValue,
    UnknownSchema,
    UnknownTool,
    UnreadableReply,
    UnreadableStored,
    UnstorableNumber,
    UnstorableText,
    UnsupportedType,
    WrongAnswers,
)
from deedbox.errors.decision import (
    NoSuchCall,
    NotAHandle,
    NoTransaction,
    PlanDivergence,
    RunClosed,
    RunTaken,
    StepGap,
    StepTaken,
    TurnLeft,
    UnknownCall,
    UnknownRun,
    Unsettled,
)
from deedbox.errors.handler import HandlerTaken, NoHandler, NoHandlers, OutcomeUnknown, Refusal, RetryLater, WorkerEnded
from deedbox.errors.pipeline import (
    ConnectorFailed,
    ConnectorInvalid,
    ConnectRefused,
    ConnectUnreachable,
    JarRefused,
    KafkaUnreachable,
    NoConnector,
    NoConnectRole,
    NoLogicalDecoding,
    NoPublication,
    SlotInUse,
    StackFailed,
    TopicRefused,
)
from deedbox.errors.setup import (
    BrokenSettings,
    ExtraMissing,
    MigrationChanged,
    MissingSetting,
    NotMigrated,
    WrongSetting,
)

__all__ = [
    "BadInput",
    "BadPayload",
    "BrokenSettings",
    "CommitRefused",
    "ConnectRefused",
    "ConnectUnreachable",
    "ConnectorFailed",
    "ConnectorInvalid",
    "DeedboxError",
    "EffectNotSupported",
    "ExtraMissing",
    "HandlerTaken",
    "HandlerVerdict",
    "InvalidArguments",
    "InvalidEffect",
    "InvalidKey",
    "InvalidRunId",
    "InvalidTool",
    "InvalidToolName",
    "JarRefused",
    "KafkaUnreachable",
    "MigrationChanged",
    "MissingSetting",
    "NoConnectRole",
    "NoConnector",
    "NoHandler",
    "NoHandlers",
    "NoLogicalDecoding",
    "NoPublication",
    "NoSuchCall",
    "NoTools",
    "NoTransaction",
    "NotAHandle",
    "NotMigrated",
    "NotReady",
    "OutcomeUnknown",
    "PayloadTooLarge",
    "PlanDivergence",
    "Refusal",
    "RetryLater",
    "RunClosed",
    "RunTaken",
    "SlotInUse",
    "StackFailed",
    "StepGap",
    "StepTaken",
    "StrictSchema",
    "ToolChanged",
    "ToolNotApplied",
    "TopicRefused",
    "TurnLeft",
    "UnencodableValue",
    "UnknownCall",
    "UnknownRun",
    "UnknownSchema",
    "UnknownTool",
    "UnreadableReply",
    "UnreadableStored",
    "Unsettled",
    "UnstorableNumber",
    "UnstorableText",
    "UnsupportedType",
    "WorkerEnded",
    "WrongAnswers",
    "WrongSetting",
]

for _name in __all__:
    globals()[_name].__module__ = __name__  # a traceback reads deedbox.errors.StepTaken
