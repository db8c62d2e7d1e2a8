"""config.toml and `--show-settings`: who decides about a setting, and that it is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.tiny import with_template


@pytest.fixture
def model(tmp_path) -> str:
    return str(with_template(tmp_path / "tiny.gguf"))


@pytest.fixture
def config(tmp_path):
    """Writes the file where the program looks for it."""

    def write(text: str) -> Path:
        path = tmp_path / ".config" / "gguf-runtime" / "config.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    return write


def settings(gg, *args, **env) -> dict:
    done = gg("run", *args, "--show-settings", "--json", XDG_CONFIG_HOME="", **env)
    assert done.code == 0, done.err
    return json.loads(done.out)["settings"]


def test_each_value_comes_from_the_first_that_gives_one(gg, model, config):
    path = config("temperature = 0.25\nthreads = 3\ntop-k = 7\nseed = 5\n")

    alone = settings(gg, model, "--no-config")
    found = settings(gg, model, "--top-k", "9", GGUF_RUNTIME_THREADS="2")

    assert found["top_k"] == {"value": 9, "origin": "command line"}
    assert found["threads"] == {"value": 2, "origin": "environment GGUF_RUNTIME_THREADS"}
    assert found["temperature"] == {"value": 0.25, "origin": str(path)}
    assert found["top_p"] == {"value": 0.95, "origin": "built-in"}
    assert found["context"]["origin"] == "model file"
    assert found["think"] == {"value": "auto", "origin": "built-in"}
    assert alone["temperature"] == {"value": 0.8, "origin": "built-in"}
    assert alone["seed"] == {"value": "random", "origin": "built-in"}


def test_the_model_file_decides_where_nobody_else_does(gg, tmp_path):
    from tests.gguf_bytes import F32, pair
    from tests.tiny import QWEN3, edited

    path = edited(QWEN3, tmp_path / "m.gguf", [pair("general.sampling.temp", F32, 0.5)])

    assert settings(gg, str(path))["temperature"] == {"value": 0.5, "origin": "model file"}
    asked = settings(gg, str(path), "--temp", "0")
    assert asked["temperature"] == {"value": 0.0, "origin": "command line"}


def test_the_table_for_people_has_the_values_of_the_json(gg, model):
    done = gg("run", model, "--show-settings", "--seed", "7")
    found = settings(gg, model, "--seed", "7")

    rows = [line.split() for line in done.out.splitlines()]
    assert [r[0].replace("-", "_") for r in rows] == list(found)
    assert ["seed", "7", "command", "line"] in rows
    assert done.err == ""


def test_values_of_the_file_are_used_and_told(gg, model, config):
    config('max-tokens = 3\ntemperature = 0\n[run]\njson = true\n[chat]\nsystem = "x"\n')

    done = gg("run", model, "hello", XDG_CONFIG_HOME="")

    facts = json.loads(done.out)
    assert len(facts["ids"]) == 3
    assert facts["notices"][0] == {
        "code": "config",
        "message": "from config.toml: max-tokens 3, temperature 0, json true",
    }
    assert "notice: from config.toml" in done.err
    assert gg("run", model, "hello", "-n", "3", "--strict", XDG_CONFIG_HOME="").code == 6
    assert (
        gg("run", model, "hi", "-n", "3", "--strict", "--no-config", XDG_CONFIG_HOME="").code == 0
    )


def test_a_command_of_its_own_table_only(gg, config):
    config("[run]\njson = true\n")

    assert not gg("list", XDG_CONFIG_HOME="").out.startswith("{")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("temprature = 1", "did you mean temperature?"),
        ("[rn]\njson = true", "did you mean run?"),
        ("[list]\njsn = true", "did you mean json?"),
        ("model = 'x'", "no setting 'model'"),
        ("threads = 'many'", "expected a whole number, got 'many'"),
        ("threads = 2.5", "expected a whole number, got 2.5"),
        ("threads = ", "not TOML"),
        ("temperature = -1", "expected at least 0"),
        ("stop = [1.5]", "expected a text"),
    ],
    ids=lambda x: x[:12],
)
def test_a_wrong_file_is_wrong_usage_with_the_path_and_a_cure(gg, model, config, text, words):
    path = config(text)

    done = gg(
        "list" if "list" in text else "run",
        *([] if "list" in text else [model, "hi"]),
        XDG_CONFIG_HOME="",
    )

    assert done.code == 2
    assert done.out == ""
    assert done.err.startswith(f"error: {path}: ")
    assert words in done.err
    assert gg("list", "--no-config", XDG_CONFIG_HOME="").code == 0


def test_the_environment_names_another_file_or_none(gg, model, config, tmp_path):
    config("seed = 1")
    other = tmp_path / "other.toml"
    other.write_text("seed = 2")

    assert settings(gg, model, GGUF_RUNTIME_CONFIG=str(other))["seed"]["value"] == 2
    assert settings(gg, model, GGUF_RUNTIME_CONFIG="")["seed"]["value"] == "random"
    gone = gg("list", GGUF_RUNTIME_CONFIG=str(tmp_path / "gone"))
    assert gone.code == 2
    assert "no such file" in gone.err


def test_help_does_not_read_the_file(gg, config):
    config("broken =")

    assert gg("run", "--help", XDG_CONFIG_HOME="").code == 0


def test_the_library_does_not_read_the_file(gg, model, config, tmp_path):
    from gguf_runtime import Model

    path = config("temperature = 0.0\nmax-tokens = 2")
    with pytest.MonkeyPatch.context() as m:
        m.setenv("GGUF_RUNTIME_CONFIG", str(path))
        with Model(model, context=64) as loaded:
            out = loaded.complete("a", max_tokens=4)

    assert out.sampling["temperature"] == 0.8


def test_a_constraint_of_the_command_line_replaces_one_of_the_file(gg, model, config):
    config('choice = ["x", "y"]\n')

    own = gg("run", model, "a", "--regex", "[0-9]{3}", "--seed", "1")
    both = gg("run", model, "a", "--regex", "[0-9]{3}", "--choice", "b")

    assert own.code == 0
    assert own.out.strip().isdecimal()
    assert "exclude each other" in both.err
