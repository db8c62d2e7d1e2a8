"""Nothing happens silently: each case gives its notice on stderr, in JSON and in the exit code of --strict."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.tiny import QWEN3, with_template

THINKS = "{% for m in messages %}{{ m.content }}{% endfor %}<think>\n{# </think> #}"
LONG = [{"role": r, "content": "x" * 60} for _ in range(6) for r in ("user", "assistant")]


@dataclass(frozen=True)
class Case:
    """Options of `run MODEL hi`, and the code of the notice that they bring."""

    code: str
    args: tuple[str, ...] = ()
    model: str = "m.gguf"
    env: tuple[tuple[str, str], ...] = ()


CASES = (
    Case("no-template", model="raw.gguf"),
    Case("template", ("--template", "vicuna")),
    Case("template-tokens", ("--template", "chatml")),
    Case("no-reasoning", ("--think", "off")),
    Case("no-reasoning", ("--think-budget", "5")),
    Case("no-think-switch", ("--think", "off"), model="thinks.gguf"),
    Case("raw", ("--raw", "--think", "off")),
    Case("context-beyond-training", ("-c", "2000")),
    Case("trimmed", ("--messages", "long.json", "-c", "400", "--on-overflow", "trim")),
    Case("trimmed", ("--raw", "-f", "long.txt", "-c", "64", "--on-overflow", "trim")),
    Case("repeating", ("--raw", "-n", "200", "--seed", "1")),
    Case("config", env=(("GGUF_RUNTIME_CONFIG", "c.toml"),)),
)


@pytest.fixture
def here(tmp_path) -> Path:
    """Models and files that the cases name, where `gg` runs."""
    with_template(tmp_path / "m.gguf")
    with_template(tmp_path / "thinks.gguf", template=THINKS)
    (tmp_path / "raw.gguf").write_bytes(QWEN3.read_bytes())
    (tmp_path / "long.json").write_text(json.dumps(LONG))
    (tmp_path / "long.txt").write_text("x" * 300)
    (tmp_path / "c.toml").write_text("top-k = 7\n")
    return tmp_path


def _case_id(case: Case) -> str:
    return " ".join([case.code, *case.args[:2]])


@pytest.mark.parametrize("case", CASES, ids=_case_id)
def test_a_case_is_noticed(gg, here, case):
    args = ["run", case.model, "hi", "--temp", "0", "-n", "2", *case.args]
    env = dict(case.env)
    plain = gg(*args, "--json", **env)
    strict = gg(*args, "--strict", **env)
    quiet = gg(*args, "--quiet", **env)

    assert plain.code == 0, plain.err
    found = {n["code"]: n["message"] for n in json.loads(plain.out)["notices"]}
    assert case.code in found
    assert f"notice: {found[case.code]}\n" in plain.err
    assert strict.code == 6
    assert quiet.code == 0
    assert quiet.err == ""
    assert gg(*args, "--quiet", "--strict", **env).code == 6


def test_a_call_without_a_case_is_silent(gg, here):
    done = gg("run", "m.gguf", "hi", "--temp", "0", "-n", "2", "--strict")

    assert (done.code, done.err) == (0, "")
