"""What can be wrong with settings, packages and the ledger's schema."""

from __future__ import annotations

from pathlib import Path

from deedbox.errors.base import BadInput, NotReady


class MissingSetting(BadInput):
    """No {name} is known: give {option}, set {variable}, or start a local stack here with `deedbox stack up`."""

    name: str
    option: str
    variable: str


class WrongSetting(BadInput):
    """The {name} {value!r} cannot be used: a lower-case letter, then at most 40 of a-z 0-9 _"""

    name: str
    value: str


class WrongDatabaseUrl(BadInput):
    """The database URL cannot be read ({problem}): write postgresql://user:password@host:5432/database"""

    problem: str


class BrokenSettings(BadInput):
    """{path} cannot be read ({problem}): remove it; `deedbox stack up` writes it anew."""

    path: Path
    problem: Exception


class NotMigrated(NotReady):
    """Schema {schema} is at migration {found} and this version needs {wanted}: run `{command}`."""

    schema: str
    found: int | str
    wanted: int
    command: str

    def __init__(self, *, schema: str, found: int | str, wanted: int, **_: object) -> None:
        command = "deedbox init" if schema == "deedbox" else f"deedbox init --schema {schema}"
        super().__init__(schema=schema, found=found, wanted=wanted, command=command)


class MigrationChanged(NotReady):
    """Migration {name} was applied to schema {schema} with another text: no release has it yet, so there is no way from one to the other. Start from an empty schema; of a local stack: `deedbox stack reset`."""

    name: str
    schema: str


class ExtraMissing(NotReady):
    """{what} needs more packages than are installed: pip install '{extra}'"""

    what: str
    extra: str
