"""Python types as JSON schemas, and answers as their objects.

Pydantic models speak for themselves; dataclasses, TypedDicts, Enums, Literals and the containers of
`typing` are read here. Pydantic is not needed.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import types as python
import typing
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NotRequired, Required, Union, get_args, get_origin, is_typeddict

from gguf_runtime.errors import RequestError

Schema = dict[str, Any]

_PLAIN: dict[Any, Schema] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    None: {"type": "null"},
    type(None): {"type": "null"},
    Any: {},
    object: {},
    dict: {"type": "object"},
    list: {"type": "array"},
    datetime.date: {"type": "string", "format": "date"},
    datetime.time: {"type": "string", "format": "time"},
    datetime.datetime: {"type": "string", "format": "date-time"},
    uuid.UUID: {"type": "string", "format": "uuid"},
}
_READ: dict[Any, Any] = {
    datetime.date: datetime.date.fromisoformat,
    datetime.time: datetime.time.fromisoformat,
    datetime.datetime: datetime.datetime.fromisoformat,
    uuid.UUID: uuid.UUID,
    float: float,
}


def schema_of(t: Any) -> Schema:
    """The JSON schema of a Python type; RequestError names a part that has none."""
    made = _Made()
    found = made.of(t)
    if made.definitions:
        found = {**found, "$defs": made.definitions}
    return found


class _Made:
    """Classes become definitions, so that they may hold themselves."""

    def __init__(self) -> None:
        self.definitions: dict[str, Schema] = {}
        self._names: dict[Any, str] = {}

    def of(self, t: Any) -> Schema:
        try:
            if t in _PLAIN:
                return dict(_PLAIN[t])
        except TypeError:  # cannot be a key
            pass
        if _is_pydantic(t):
            return self._pydantic(t)
        origin, args = get_origin(t), get_args(t)
        if origin is typing.Annotated:
            return self._annotated(args)
        if origin in (Required, NotRequired):
            return self.of(args[0])
        if origin is Literal:
            return {"enum": list(args)}
        if origin in (Union, python.UnionType):
            return {"anyOf": [self.of(a) for a in args]}
        if isinstance(origin, type):
            return self._container(t, origin, args)
        if isinstance(t, type) and issubclass(t, enum.Enum):
            return {"enum": [m.value for m in t]}
        if dataclasses.is_dataclass(t) or is_typeddict(t):
            return self._class(t)
        raise RequestError(
            f"no JSON schema for {t!r}",
            where="schema",
            expected="a schema (dict), a Pydantic model, a dataclass, a TypedDict, an Enum, a Literal,"
            " or str, int, float, bool, None, list, dict, tuple and unions of these",
        )

    def _container(self, t: Any, origin: type, args: tuple[Any, ...]) -> Schema:
        if issubclass(origin, tuple):
            if len(args) == 2 and args[1] is ...:
                return {"type": "array", "items": self.of(args[0])}
            parts = [self.of(a) for a in args]
            return {
                "type": "array",
                "prefixItems": parts,
                "items": False,
                "minItems": len(parts),
                "maxItems": len(parts),
            }
        if issubclass(origin, Mapping):
            if args[0] is not str:
                raise RequestError(f"keys of {t!r} are no str", where="schema")
            return {"type": "object", "additionalProperties": self.of(args[1])}
        if issubclass(origin, Sequence):
            return {"type": "array", "items": self.of(args[0])}
        raise RequestError(f"no JSON schema for {t!r}", where="schema")

    def _annotated(self, args: tuple[Any, ...]) -> Schema:
        """Further keywords as a dict behind the type: `Annotated[int, {"minimum": 0}]`."""
        found = self.of(args[0])
        for extra in args[1:]:
            if isinstance(extra, dict):
                found |= extra
            elif isinstance(extra, str):
                found["description"] = extra
        return found

    def _class(self, t: Any) -> Schema:
        name = self._names.get(t)
        if name is None:
            name = t.__name__
            while name in self.definitions:
                name += "_"
            self._names[t] = name
            self.definitions[name] = {}  # its fields may name it
            hints = typing.get_type_hints(t, include_extras=True)
            if is_typeddict(t):
                required = [k for k in hints if k in t.__required_keys__]
            else:
                fields = [f for f in dataclasses.fields(t) if f.init]
                hints = {f.name: hints[f.name] for f in fields}
                required = [
                    f.name
                    for f in fields
                    if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
                ]
            self.definitions[name] |= {
                "type": "object",
                "properties": {k: self.of(x) for k, x in hints.items()},
                "required": required,
                "additionalProperties": False,
            }
        return {"$ref": f"#/$defs/{name}"}

    def _pydantic(self, t: Any) -> Schema:
        found = dict(t.model_json_schema(ref_template="#/$defs/{model}"))
        for name, part in found.pop("$defs", {}).items():
            self.definitions.setdefault(name, part)
        return found


def value_of(t: Any, value: Any) -> Any:
    """The object of a type that a JSON value, valid under its schema, stands for."""
    if _is_pydantic(t):
        return t.model_validate(value)
    origin, args = get_origin(t), get_args(t)
    if origin in (typing.Annotated, Required, NotRequired):
        return value_of(args[0], value)
    if origin in (Union, python.UnionType):
        return _first_that_fits(args, value)
    if isinstance(origin, type) and issubclass(origin, tuple):
        kinds = [args[0]] * len(value) if len(args) == 2 and args[1] is ... else args
        return tuple(value_of(a, x) for a, x in zip(kinds, value, strict=True))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {k: value_of(args[1], x) for k, x in value.items()}
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return [value_of(args[0], x) for x in value]
    if isinstance(t, type) and issubclass(t, enum.Enum):
        return t(value)
    if dataclasses.is_dataclass(t) and isinstance(t, type):
        hints = typing.get_type_hints(t, include_extras=True)
        return t(**{k: value_of(hints[k], x) for k, x in value.items()})
    if is_typeddict(t):
        hints = typing.get_type_hints(t, include_extras=True)
        return {k: value_of(hints[k], x) for k, x in value.items()}
    read = _READ.get(t) if isinstance(t, type) else None
    return value if read is None else read(value)


def _first_that_fits(kinds: tuple[Any, ...], value: Any) -> Any:
    """A member of a union whose schema the value has; the first, where several have."""
    import json

    from gguf_runtime.text.constraint.api import Constraint

    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for kind in kinds:
        if Constraint.from_schema(kind).accepts(text):
            return value_of(kind, value)
    return value


def _is_pydantic(t: Any) -> bool:
    return isinstance(t, type) and hasattr(t, "model_json_schema") and hasattr(t, "model_validate")
