"""`-p 'Classify: {text}'`: a prompt with columns in braces.

`{name}` is the value of that column, `{{name}}` is `{name}` itself. Other braces stay as they are, so
that a prompt can show JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Any

from gguf_runtime.cli.values import UsageError
from gguf_runtime.errors import RequestError, show
from gguf_runtime.hub.near import suggestion

_BRACES = re.compile(r"\{\{([^{}\n]*)\}\}|\{([^{}\n]*)\}")
_NAME = re.compile(r"\w[\w .-]*")


class Fill:
    """A template of a prompt; `columns` are the names in it that look like columns."""

    def __init__(self, template: str) -> None:
        self.template = template
        self.columns = [
            m[2] for m in _BRACES.finditer(template) if m[2] is not None and _NAME.fullmatch(m[2])
        ]

    def check(self, known: Collection[str], where: str) -> None:
        """UsageError for a column that the input has not; a prompt without columns is one too."""
        for name in self.columns:
            if name not in known:
                near = suggestion(name, list(known))
                listed = ", ".join(sorted(known)[:12])
                raise UsageError(
                    f"--prompt: {where} has no column {show(name)}",
                    f"it has {listed}" + (f"; did you mean {{{near}}}?" if near else ""),
                    f"for braces that are text write {{{{{name}}}}}",
                )
        if not any(m[2] in known for m in _BRACES.finditer(self.template)):
            name = next(iter(known), "column")
            raise UsageError(
                "--prompt names no column, so all prompts would be the same",
                f"put one in braces: -p 'Classify: {{{name}}}'",
            )

    def __call__(self, fields: Mapping[str, Any]) -> str:
        """The prompt of one record; RequestError where a column is missing."""

        def value(m: re.Match[str]) -> str:
            name: str | None = m[2]
            if name is None:
                return f"{{{m[1]}}}"
            if name in fields:
                found = fields[name]
                return found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)
            if _NAME.fullmatch(name):
                raise RequestError(
                    f"there is no field {show(name)} for the prompt",
                    got=", ".join(map(show, sorted(fields)[:8])) or "no fields",
                )
            return m[0]

        return _BRACES.sub(value, self.template)
