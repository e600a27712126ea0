"""The JSON Schema that a chat model gets, and what strict modes take of it."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema

from deedbox.errors import StrictSchema

# What the strict modes of all dialects have in common.
_STRICT = {
    *("$defs", "$ref", "additionalProperties", "anyOf", "const", "description", "enum", "format", "items"),
    *("properties", "required", "title", "type"),
}


class _Untitled(GenerateJsonSchema):
    """Titles repeat the names of fields and cost tokens in every request."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - the name is the base class' own
        return False


def json_schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """The schema of a tool's arguments; the description stands beside it, not in it."""
    schema = model.model_json_schema(schema_generator=_Untitled)
    return {key: value for key, value in schema.items() if key not in ("title", "description")}


def check_strict(tool: str, schema: dict[str, Any]) -> None:
    """Raise StrictSchema at the first place that a strict mode would refuse."""
    _check(tool, schema, "args")


def _check(tool: str, schema: dict[str, Any], where: str) -> None:
    unknown = sorted(schema.keys() - _STRICT)
    if unknown:
        raise StrictSchema(tool=tool, where=where, why=f"uses {', '.join(unknown)}, which strict modes do not take")
    properties = schema.get("properties", {})
    if schema.get("type") == "object" and schema.get("additionalProperties") is not False:
        why = "takes extra keys: give its model ConfigDict(extra='forbid'), and name keys instead of using dict"
        raise StrictSchema(tool=tool, where=where, why=why)
    missing = sorted(properties.keys() - set(schema.get("required", ())))
    if missing:
        raise StrictSchema(
            tool=tool, where=f"{where}.{missing[0]}", why="has a default, and strict asks for every field"
        )
    for name, part in properties.items():
        _check(tool, part, f"{where}.{name}")
    for name, part in schema.get("$defs", {}).items():
        _check(tool, part, name)
    for part in schema.get("anyOf", ()):
        _check(tool, part, where)
    if isinstance(schema.get("items"), dict):
        _check(tool, schema["items"], f"{where}[]")
