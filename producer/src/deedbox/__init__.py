"""Deedbox: an agent's tool calls happen once, or are known not to have.

At most one effect per committed decision, none lost, unknowns named.
"""

from deedbox.aio import AsyncDeedbox
from deedbox.aio_run import AsyncRun, AsyncTurn
from deedbox.box import Deedbox
from deedbox.chat import anthropic_chat, openai_chat, openai_responses, user
from deedbox.effects import probe, provider_key, repeatable, unrepeatable
from deedbox.errors import DeedboxError, PlanDivergence, StepTaken, Unsettled
from deedbox.run import Run, Turn
from deedbox.tool import Call, Tool

__all__ = [
    "AsyncDeedbox",
    "AsyncRun",
    "AsyncTurn",
    "Call",
    "Deedbox",
    "DeedboxError",
    "PlanDivergence",
    "Run",
    "StepTaken",
    "Tool",
    "Turn",
    "Unsettled",
    "anthropic_chat",
    "openai_chat",
    "openai_responses",
    "probe",
    "provider_key",
    "repeatable",
    "unrepeatable",
    "user",
]

for _name in ("AsyncDeedbox", "AsyncRun", "AsyncTurn", "Call", "Deedbox", "Run", "Tool", "Turn"):
    globals()[_name].__module__ = __name__  # a traceback reads deedbox.Deedbox
del _name
