"""A chat template that was given in place of the file's own: found, tried, and said aloud."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from gguf_runtime.engine.completion import Notice
from gguf_runtime.engine.prompt import Prompter, own_source, read_template
from gguf_runtime.errors import FileError, RequestError
from gguf_runtime.text import fallbacks

if TYPE_CHECKING:
    from gguf_runtime.gguf import GGUFFile
    from gguf_runtime.text.template import Template
    from gguf_runtime.text.tokenizer import Tokenizer

MAX_BYTES = 1 << 20  # of a template's file

_TAG = re.compile(r"<\|[^<>|\s]+\|>|<(?:start|end)_of_turn>")
_PROBE = [
    {"role": "user", "content": "a"},
    {"role": "assistant", "content": "b"},
    {"role": "user", "content": "c"},
]


def prompter_of(
    file: GGUFFile, tokenizer: Tokenizer, given: str | os.PathLike[str] | None
) -> tuple[Prompter, tuple[Notice, ...]]:
    """What makes prompts for a model.

    Args:
        file: the model's.
        tokenizer: the model's.
        given: the name of a built-in template, a file, or a source; None for the file's own.

    Raises:
        RequestError: no such template, or one that cannot render three turns.
        FileError: a file that cannot be read.
    """
    if given is None:
        return Prompter(tokenizer, read_template(file, tokenizer)), ()
    name, source = find(given)
    template = read_template(file, tokenizer, source)
    assert template is not None
    rendered, ending = _probed(template)
    place = "in place of the model's own" if own_source(file) else "as the model has none"
    notices = [Notice("template", f"prompts are built with the template {name}, {place}")]
    lacking = [t for t in dict.fromkeys(_TAG.findall(rendered)) if tokenizer.token(t) is None]
    if lacking:
        words = ", ".join(lacking)
        said = f"the template's {words} are no tokens of this model: it was trained with another"
        notices.append(Notice("template-tokens", said))
    stop = tuple(t for t in dict.fromkeys(_TAG.findall(ending)) if t in lacking)
    return Prompter(tokenizer, template, stop), tuple(notices)


def find(given: str | os.PathLike[str]) -> tuple[str, str]:
    """What to call a template, and its source."""
    if isinstance(given, str):
        if given in fallbacks.LAYOUTS:
            return given, fallbacks.source(given)
        if "{%" in given or "{{" in given:
            return "given", given
    path = Path(os.path.expanduser(given))
    if isinstance(given, str) and not path.is_file() and path.name == given:
        fallbacks.source(given)  # refuses, with the names
    try:
        with open(path, "rb") as f:
            raw = f.read(MAX_BYTES + 1)
        if len(raw) > MAX_BYTES:
            raise RequestError("too long for a chat template", where=path)
        return path.name, raw.decode()
    except OSError as e:
        raise FileError((e.strerror or "cannot be read").lower(), where=path) from e
    except UnicodeDecodeError as e:
        raise RequestError(f"byte {e.start:,} is not UTF-8", where=path) from None


def _probed(template: Template) -> tuple[str, str]:
    """Three turns rendered, and what stands behind the assistant's."""
    rendered = template.render(_PROBE)
    if not rendered.strip():
        raise RequestError("the chat template leaves every message out", where="template")
    closed = template.render(_PROBE[:2], add_generation_prompt=False)
    return rendered, closed[closed.rfind("b") + 1 :]
