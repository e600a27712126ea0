"""Where a worker's records come from."""

from deedbox_consumers.source.base import Source, SourceName

__all__ = ["Source", "SourceName"]
