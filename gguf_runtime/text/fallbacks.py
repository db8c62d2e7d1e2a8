"""Chat templates by name, for models whose file has none.

Each is laid out like the prompts of the model family that it is named after, from a table of what
stands around a message; they know the roles system, user and assistant and plain text.

Checked: tests/golden/text/test_fallbacks.py, against renderings of the families' own templates.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from gguf_runtime.errors import RequestError, show

_BOS, _EOS = "\0bos", "\0eos"  # stand for the tokens of the file


@dataclass(frozen=True, slots=True)
class Layout:
    """What stands before and after the messages of a role.

    system  of its own; or `inside`: around a system message that begins the first user message
    bos     what the prompt begins with
    trim    messages lose white space at their edges
    """

    user: tuple[str, str]
    assistant: tuple[str, str]
    system: tuple[str, str] | None = None
    inside: tuple[str, str] = ("", "\n\n")
    bos: str = ""
    trim: bool = False
    opening: str | None = None


LAYOUTS: dict[str, Layout] = {
    "alpaca": Layout(
        ("### Instruction:\n", "\n\n"), ("### Response:\n", _EOS + "\n\n"), ("", "\n\n"), bos=_BOS
    ),
    "chatml": Layout(
        ("<|im_start|>user\n", "<|im_end|>\n"),
        ("<|im_start|>assistant\n", "<|im_end|>\n"),
        ("<|im_start|>system\n", "<|im_end|>\n"),
    ),
    "command-r": Layout(
        ("<|START_OF_TURN_TOKEN|><|USER_TOKEN|>", "<|END_OF_TURN_TOKEN|>"),
        ("<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>", "<|END_OF_TURN_TOKEN|>"),
        ("<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>", "<|END_OF_TURN_TOKEN|>"),
        bos=_BOS,
        trim=True,
    ),
    "deepseek": Layout(
        ("User: ", "\n\n"),
        ("Assistant: ", _EOS),
        ("", "\n\n"),
        bos=_BOS,
        opening="Assistant:",
    ),
    "gemma": Layout(
        ("<start_of_turn>user\n", "<end_of_turn>\n"),
        ("<start_of_turn>model\n", "<end_of_turn>\n"),
        bos=_BOS,
        trim=True,
    ),
    "granite": Layout(
        ("<|start_of_role|>user<|end_of_role|>", "<|end_of_text|>\n"),
        ("<|start_of_role|>assistant<|end_of_role|>", "<|end_of_text|>\n"),
        ("<|start_of_role|>system<|end_of_role|>", "<|end_of_text|>\n"),
    ),
    "llama2": Layout(
        (_BOS + "[INST] ", " [/INST]"),
        (" ", " " + _EOS),
        inside=("<<SYS>>\n", "\n<</SYS>>\n\n"),
        trim=True,
        opening="",
    ),
    "llama3": Layout(
        ("<|start_header_id|>user<|end_header_id|>\n\n", "<|eot_id|>"),
        ("<|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>"),
        ("<|start_header_id|>system<|end_header_id|>\n\n", "<|eot_id|>"),
        bos=_BOS,
        trim=True,
    ),
    "mistral": Layout(("[INST] ", " [/INST]"), ("", _EOS), bos=_BOS, opening=""),
    "phi3": Layout(
        ("<|user|>\n", "<|end|>\n"),
        ("<|assistant|>\n", "<|end|>\n"),
        ("<|system|>\n", "<|end|>\n"),
        bos=_BOS,
    ),
    "phi4": Layout(
        ("<|im_start|>user<|im_sep|>", "<|im_end|>"),
        ("<|im_start|>assistant<|im_sep|>", "<|im_end|>"),
        ("<|im_start|>system<|im_sep|>", "<|im_end|>"),
    ),
    "vicuna": Layout(
        ("USER: ", " "), ("ASSISTANT: ", _EOS), ("", " "), bos=_BOS, opening="ASSISTANT:"
    ),
    "zephyr": Layout(
        ("<|user|>\n", _EOS + "\n"), ("<|assistant|>\n", _EOS + "\n"), ("<|system|>\n", _EOS + "\n")
    ),
}

_SOURCE = """\
{{%- macro text(m) -%}}
  {{%- if m.content is string -%}}{{{{ m.content{trim} }}}}
  {{%- else -%}}{{%- for part in m.content or [] -%}}{{{{ part.text }}}}{{%- endfor -%}}
  {{%- endif -%}}
{{%- endmacro -%}}
{{%- set seen = namespace(system=none) -%}}
{{{{- {bos} -}}}}
{{%- for m in messages -%}}
  {{%- if m.role in ("system", "developer") -%}}{system}
  {{%- elif m.role == "user" -%}}
    {{{{- {user[0]} -}}}}
    {{%- if seen.system is not none -%}}
      {{{{- {inside[0]} ~ seen.system ~ {inside[1]} -}}}}{{%- set seen.system = none -%}}
    {{%- endif -%}}
    {{{{- text(m) ~ {user[1]} -}}}}
  {{%- elif m.role == "assistant" -%}}
    {{{{- {assistant[0]} ~ text(m) ~ {assistant[1]} -}}}}
  {{%- else -%}}
    {{{{- raise_exception("the built-in template {name} knows no role " ~ m.role) -}}}}
  {{%- endif -%}}
{{%- endfor -%}}
{{%- if add_generation_prompt -%}}{{{{- {opening} -}}}}{{%- endif -%}}
"""
_KEPT = "{%- set seen.system = text(m) -%}"


def source(name: str) -> str:
    """The Jinja source of a built-in template.

    Raises:
        RequestError: there is none of this name; the message has those that there are.
    """
    layout = LAYOUTS.get(name)
    if layout is None:
        raise RequestError(
            f"no built-in template is called {show(name)}",
            where="template",
            expected=", ".join(sorted(LAYOUTS)) + ", or a file",
        )
    own = layout.system
    system = _KEPT
    if own is not None:
        system = f"{{{{- {_literal(own[0])} ~ text(m) ~ {_literal(own[1])} -}}}}"
    opening = layout.assistant[0] if layout.opening is None else layout.opening
    return _SOURCE.format(
        name=name,
        trim=" | trim" if layout.trim else "",
        bos=_literal(layout.bos),
        system=system,
        user=[_literal(t) for t in layout.user],
        assistant=[_literal(t) for t in layout.assistant],
        inside=[_literal(t) for t in layout.inside],
        opening=_literal(opening),
    )


def _literal(text: str) -> str:
    """A text as Jinja writes it, the names of the file's tokens in their places."""
    parts = text.replace(_BOS, "\1bos_token\1").replace(_EOS, "\1eos_token\1").split("\1")
    written = [json.dumps(p, ensure_ascii=False) if k % 2 == 0 else p for k, p in enumerate(parts)]
    return " ~ ".join(w for w in written if w != '""') or '""'
