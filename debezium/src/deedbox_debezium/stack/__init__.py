"""The local stack: PostgreSQL, Kafka, Kafka Connect and Debezium in one folder, without Docker or system packages."""

from deedbox_debezium.stack.progress import Progress, Shown, Silent
from deedbox_debezium.stack.stack import PartName, Stack

__all__ = ["PartName", "Progress", "Shown", "Silent", "Stack"]
