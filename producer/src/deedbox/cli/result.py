"""A result that a person states, held against the schema of the tool's results."""

from __future__ import annotations

import json
from typing import Any

import typer

from deedbox.errors import ResultDoesNotFit
from deedbox.stored import check_storable

RESULT_LIMIT = 800_000  # bytes, as of a worker's: the result event, 900,000 at most, holds more than the result

# What an Avro type is in a result's JSON. Bytes are base64; a decimal, a moment or a date is a text there.
_KINDS: dict[str, tuple[type | tuple[type, ...], str]] = {
    "null": (type(None), "null"),
    "boolean": (bool, "true or false"),
    "int": (int, "a whole number"),
    "long": (int, "a whole number"),
    "float": ((int, float), "a number"),
    "double": ((int, float), "a number"),
    "string": (str, "a text"),
    "bytes": (str, "a text"),
    "array": (list, "a list"),
    "map": (dict, "an object"),
    "record": (dict, "an object"),
    "enum": (str, "a text"),
}


def parse(text: str) -> dict[str, Any]:
    """The JSON object in a text; raises BadParameter, UnstorableText, UnstorableNumber."""
    try:
        value = json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError) as problem:
        raise typer.BadParameter(f"this is no JSON ({problem})", param_hint="--happened") from None
    if not isinstance(value, dict):
        wanted = 'a result is an object, such as \'{"id": "ch_1"}\''
        raise typer.BadParameter(f"{wanted}, not {_word(value)}", param_hint="--happened")
    check_storable(value, "result")
    if (size := len(json.dumps(value, ensure_ascii=False).encode())) > RESULT_LIMIT:
        raise typer.BadParameter(
            f"it takes {size} bytes of the {RESULT_LIMIT} that a result may", param_hint="--happened"
        )
    return value


def check(tool: str, value: dict[str, Any], schema: str) -> None:
    """Raise ResultDoesNotFit unless an agent that knows `schema` could read the value as a result of the tool."""
    if problems := _problems(value, json.loads(schema), "", {}):
        raise ResultDoesNotFit(tool=tool, problems="; ".join(problems))


def _problems(value: Any, schema: Any, where: str, named: dict[str, Any]) -> list[str]:
    """Why the value is none of the schema; `named` holds the types that were defined so far."""
    if isinstance(schema, list):
        tried = [_problems(value, branch, where, named) for branch in schema]
        return min(tried, key=_how_far) if all(tried) else []
    if isinstance(schema, str):
        schema = named.get(schema, {"type": schema})
    if schema["type"] in {"record", "enum"}:
        named[schema["name"]] = schema
    if wanted := _unlike(value, schema):
        return [f"{where or 'it'} is {_word(value)} and must be {wanted}"]
    match schema["type"]:
        case "record":
            return _fields(value, schema["fields"], where, named)
        case "enum" if value not in schema["symbols"]:
            return [f"{where} is {value!r} and must be one of {', '.join(schema['symbols'])}"]
        case "array":
            parts = [_problems(item, schema["items"], f"{where}[{at}]", named) for at, item in enumerate(value)]
        case "map":
            parts = [_problems(item, schema["values"], f"{where}.{name}", named) for name, item in value.items()]
        case _:
            parts = []
    return [problem for part in parts for problem in part]


def _unlike(value: object, schema: dict[str, Any]) -> str | None:
    """What it must be, unless it is of that type."""
    kind, wanted = _KINDS[schema["type"]]
    if logical := schema.get("logicalType"):
        kind, wanted = ((str, int, float), "a number or a text") if logical == "decimal" else (str, "a text")
    truth = isinstance(value, bool)  # which is an int to Python
    return None if isinstance(value, kind) and truth is (kind is bool) else wanted


def _fields(value: dict[str, Any], fields: list[Any], where: str, named: dict[str, Any]) -> list[str]:
    path = f"{where}." if where else ""
    known = [field["name"] for field in fields]
    problems = []
    for field in fields:
        if field["name"] in value:
            problems += _problems(value[field["name"]], field["type"], path + field["name"], named)
        elif "default" not in field:
            problems.append(f"{path}{field['name']} is missing")
    for name in value:
        if name not in known:
            problems.append(f"{path}{name} is not one of {', '.join(known) or 'its names, which are none'}")
    return problems


def _how_far(problems: list[str]) -> tuple[bool, int]:
    """Of a union the branch that fits best tells what is wrong: not the null, then the one with the fewest problems."""
    return any("must be null" in problem for problem in problems), len(problems)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a name stands twice in one object")
    return made


def _word(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "a text"
        case list():
            return "a list"
        case _:
            return "an object"
