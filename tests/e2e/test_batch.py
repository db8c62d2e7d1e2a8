"""`batch` on tiny models: forms of input and output, resuming, error lines, what it refuses and why."""

from __future__ import annotations

import importlib.resources
import json
import os
from pathlib import Path

import jsonschema
import pytest

from tests.tiny import GEMMA3, QWEN3, with_template

SCHEMA = json.loads(
    importlib.resources.files("gguf_runtime.cli").joinpath("batch.schema.json").read_text("utf-8")
)
WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "and", "so", "on"]


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    return str(with_template(tmp_path_factory.mktemp("model") / "tiny.gguf"))


@pytest.fixture
def here(tmp_path) -> Path:
    """The folder that `gg` runs in."""
    return tmp_path


def jsonl(path: Path, *rows: object) -> Path:
    path.write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")
    return path


def prompts(path: Path, n: int, **more: object) -> Path:
    rows = [{"prompt": f"{WORDS[k % 11]} {WORDS[k % 7]} {k}"} | more for k in range(n)]
    return jsonl(path, *rows)


def read(path: Path, form: str = "line") -> list[dict]:
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    for row in rows:
        jsonschema.validate(row, SCHEMA | {"$ref": f"#/$defs/{form}"})
    return rows


def timeless(path: Path) -> list[str]:
    """Lines by number, without timings."""
    rows = [json.loads(line) for line in path.read_bytes().splitlines()]
    return [
        json.dumps({k: v for k, v in row.items() if k != "timings"}, ensure_ascii=False)
        for row in sorted(rows, key=lambda r: r["line"])
    ]


def test_every_answer_is_that_of_run_with_the_seed_of_its_line(gg, here, model):
    prompts(here / "in.jsonl", 6, max_tokens=12)
    done = gg("batch", model, "in.jsonl", "-o", "out.jsonl", "--seed", "5", "--system", "Be brief")

    assert done.code == 0, done.err
    assert done.out == ""
    rows = sorted(read(here / "out.jsonl"), key=lambda r: r["line"])
    assert [r["line"] for r in rows] == [1, 2, 3, 4, 5, 6]
    assert len({r["seed"] for r in rows}) == 6
    for row in rows:
        prompt = json.loads((here / "in.jsonl").read_text().splitlines()[row["line"] - 1])["prompt"]
        one = gg(
            *("run", model, prompt, "--seed", str(row["seed"]), "--system", "Be brief"),
            *("-n", "12", "--json"),
        )
        alone = json.loads(one.out)
        for field in ("text", "ids", "finish_reason", "stop", "sampling", "seed"):
            assert row[field] == alone[field]
        assert row["usage"]["prompt"] == alone["usage"]["prompt"]


def test_answers_depend_neither_on_the_number_at_once_nor_on_the_order(gg, here, model):
    prompts(here / "in.jsonl", 9)
    for name, *more in (("a", "--parallel", "1"), ("b", "--parallel", "5"), ("c", "--ordered")):
        done = gg(
            *("batch", model, "in.jsonl", "-o", f"{name}.jsonl", "--seed", "1", "-n", "9", *more)
        )
        assert done.code == 0, done.err

    assert timeless(here / "a.jsonl") == timeless(here / "b.jsonl") == timeless(here / "c.jsonl")
    assert [r["line"] for r in read(here / "c.jsonl")] == list(range(1, 10))


def test_a_model_with_windows_is_answered_in_batches_as_alone(gg, here):
    prompts(here / "in.jsonl", 5, raw=True)
    for name, n in (("a", "1"), ("b", "5")):
        done = gg(
            *("batch", str(GEMMA3), "in.jsonl", "-o", f"{name}.jsonl", "--seed", "1", "-n", "30"),
            *("--parallel", n),
        )
        assert done.code == 0, done.err
    assert len(read(here / "a.jsonl")) == 5
    assert timeless(here / "a.jsonl") == timeless(here / "b.jsonl")


def test_a_line_sets_options_by_their_long_names_and_they_come_first(gg, here, model):
    jsonl(
        here / "in.jsonl",
        {"prompt": "abc", "max_tokens": 2, "temperature": 0, "id": "x"},
        {"prompt": "abc", "max-tokens": 3, "seed": 7, "id": 5},
        {"prompt": "abc", "n_predict": 1, "top_k": None, "raw": True, "id": None},
        {"messages": [{"role": "user", "content": "abc"}]},
    )
    done = gg("batch", model, "in.jsonl", "-o", "out.jsonl", "-n", "4", "--temperature", "0.5")

    assert done.code == 0, done.err
    rows = sorted(read(here / "out.jsonl"), key=lambda r: r["line"])
    assert [r["usage"]["generated"] for r in rows] == [2, 3, 1, 4]
    assert [r["sampling"]["temperature"] for r in rows] == [0, 0.5, 0.5, 0.5]
    assert [r.get("id", "none") for r in rows] == ["x", 5, None, "none"]
    assert rows[1]["seed"] == 7


def test_exactly_so_many_tokens_come_as_were_asked_for(gg, here, model):
    jsonl(here / "in.jsonl", *({"prompt": "abc", "max_tokens": n, "raw": True} for n in range(6)))
    assert gg("batch", model, "in.jsonl", "-o", "out.jsonl", "--seed", "1").code == 0
    rows = sorted(read(here / "out.jsonl"), key=lambda r: r["line"])
    assert [(r["usage"]["generated"], len(r["ids"])) for r in rows] == [(n, n) for n in range(6)]


def test_bad_lines_become_error_lines_with_number_and_reason_and_the_run_goes_on(gg, here, model):
    good = {"prompt": "abc"}
    text = "\n".join(
        [
            json.dumps(good),
            "{broken",
            "",
            json.dumps(good | {"temprature": 1}),
            json.dumps(good | {"temperature": -1}),
            json.dumps({"prompt": ""}),
            json.dumps({"prompt": "x" * 5000}),
            json.dumps({"id": "neither"}),
            json.dumps({"messages": "no"}),
            json.dumps(good | {"threads": 4}),
            json.dumps(good | {"special": True}),
            json.dumps(good),
        ]
    )
    (here / "in.jsonl").write_bytes(text.encode() + b'\n{"prompt": "\xff"}\n')
    done = gg("batch", model, "in.jsonl", "-o", "out.jsonl", "-n", "2", "-c", "200")

    rows = {r["line"]: r for r in read(here / "out.jsonl")}
    assert done.code == 6
    assert sorted(rows) == list(range(1, 14))
    assert {n: r["error"]["message"] for n, r in rows.items() if "error" in r} == {
        2: "not JSON: expecting property name enclosed in double quotes at character 2",
        3: "the line is empty",
        4: 'unknown field "temprature"',
        5: "temperature: out of range",
        6: "the prompt is empty",
        7: "the prompt is longer than the context",
        8: "a line has either a prompt or messages",
        9: "not a list of messages",
        10: "threads holds for the whole run",
        11: "no_bos and special need raw: else the template decides",
        13: "byte 13 is not UTF-8",
    }
    assert rows[4]["error"]["hint"] == "did you mean temperature?"
    assert rows[7]["error"]["where"] == "line 7"
    assert rows[8]["id"] == "neither"
    assert "11 could not be answered: jq -c 'select(.error)' out.jsonl" in done.err


def test_errors_stay_until_they_are_asked_again(gg, here, model):
    long = {"prompt": "x" * 300}
    jsonl(here / "in.jsonl", {"prompt": "abc"}, long, {"prompt": "abd"})
    args = ("batch", model, "in.jsonl", "-o", "out.jsonl", "-n", "2", "--seed", "1")
    assert gg(*args, "-c", "200").code == 6
    before = read(here / "out.jsonl")

    again = gg(*args)
    assert again.code == 6
    assert "nothing is left to do" in again.err
    assert read(here / "out.jsonl") == before

    retried = gg(*args, "--retry-errors")
    assert retried.code == 6
    assert "answered 1 line " in retried.err
    rows = read(here / "out.jsonl")
    assert [r for r in rows if "error" not in r] == [r for r in before if "error" not in r]
    assert sorted(r["line"] for r in rows) == [1, 2, 3]


def test_tables_fill_the_prompt_and_columns_are_kept(gg, here, model):
    (here / "in.csv").write_text('id,text,label\n7,"a, b",pos\n8,"c\nd",neg\n', encoding="utf-8")
    args = ("batch", model, "in.csv", "-p", r"Say:\t{text} {{x}}", "--escape", "-n", "3")
    done = gg(*args, "--keep", "label", "-o", "out.jsonl", "--seed", "1")

    assert done.code == 0, done.err
    rows = sorted(read(here / "out.jsonl"), key=lambda r: r["line"])
    assert [(r["line"], r["id"], r["columns"]) for r in rows] == [
        (2, "7", {"label": "pos"}),
        (3, "8", {"label": "neg"}),
    ]
    alone = gg("run", model, "Say:\tc\nd {x}", "--seed", str(rows[1]["seed"]), "-n", "3", "--json")
    assert json.loads(alone.out)["ids"] == rows[1]["ids"]


def test_text_is_a_prompt_a_line_from_stdin_to_stdout(gg, here, model):
    args = ("batch", model, "-", "-o", "-", "-n", "3", "--seed", "1", "--ordered")
    done = gg(*args, stdin="one\n\n two\r\nthree\n\n")
    rows = [json.loads(line) for line in done.out.splitlines()]

    assert done.code == 6  # the second line is empty
    assert [r["line"] for r in rows] == [1, 2, 3, 4]
    assert rows[1]["error"]["message"] == "the line is empty"
    (here / "in.txt").write_text("one\n\n two\r\nthree\n", encoding="utf-8")
    assert gg("batch", model, "in.txt", "-o", "o.jsonl", *args[5:]).code == 6
    (here / "stdout.jsonl").write_text(done.out, encoding="utf-8")
    assert timeless(here / "stdout.jsonl") == timeless(here / "o.jsonl")


def test_lines_of_openai_are_answered_in_their_form(gg, here, model):
    say = [
        {"role": "user", "content": [{"type": "text", "text": "ab"}, {"type": "text", "text": "c"}]}
    ]

    def line(name, url="/v1/chat/completions", **body):
        return {"custom_id": name, "method": "POST", "url": url, "body": {"model": "m"} | body}

    jsonl(
        here / "in.jsonl",
        line("a", messages=say, max_tokens=4, seed=3),
        line("b", "/v1/completions", prompt="abc", max_completion_tokens=4, temperature=0),
        line("c", messages=say, n=2),
        line("d", "/v1/embeddings", input="x"),
        line("f", messages=say, response_format={"type": "xml"}),
        line(
            "g",
            messages=say,
            response_format={"type": "json_schema", "json_schema": {"schema": {"type": "boolean"}}},
        ),
        line("e", messages=say, max_tokens=4, stream=False, user="u"),
    )
    done = gg("batch", model, "in.jsonl", "-o", "out.jsonl", "--seed", "1")

    assert done.code == 6
    rows = {r["custom_id"]: r for r in read(here / "out.jsonl", "openai")}
    a = rows["a"]["response"]["body"]
    assert a["object"] == "chat.completion"
    assert a["usage"]["completion_tokens"] == 4
    assert a["choices"][0]["finish_reason"] == "length"
    alone = gg("run", model, "abc", "--seed", "3", "-n", "4", "--json")
    assert a["choices"][0]["message"]["content"] == json.loads(alone.out)["text"]
    assert rows["b"]["response"]["body"]["object"] == "text_completion"
    assert rows["c"]["response"]["status_code"] == 400
    assert rows["c"]["error"]["message"] == "n cannot be had here"
    assert rows["d"]["error"]["message"] == 'unknown url "/v1/embeddings"'
    assert rows["e"]["error"] is None
    assert rows["f"]["error"]["message"] == "unknown response_format"
    assert rows["g"]["response"]["body"]["choices"][0]["message"]["content"] in ("true", "false")


def test_constraints_hold_for_all_lines_or_for_one(gg, here, model):
    (here / "labels.txt").write_text("pos\nneg\n", encoding="utf-8")
    jsonl(
        here / "in.jsonl",
        {"prompt": "abc"},
        {"prompt": "abc", "choice": ["x", "y"]},
        {"prompt": "abd", "max_tokens": 9},
    )
    args = ("batch", model, "in.jsonl", "-o", "out.jsonl", "--choices", "labels.txt")
    assert gg(*args, "--limit", "1").code == 0
    (here / "labels.txt").write_text("pos\nneg\nmixed\n", encoding="utf-8")
    assert "settings.choices: " in gg(*args).err
    (here / "labels.txt").write_text("pos\nneg\n", encoding="utf-8")
    assert gg(*args).code == 0
    rows = sorted(read(here / "out.jsonl"), key=lambda r: r["line"])
    assert rows[0]["object"] in ("pos", "neg")
    assert rows[1]["object"] in ("x", "y")
    assert rows[2]["object"] in ("pos", "neg")

    schema = {"type": "boolean"}
    jsonl(here / "s.jsonl", {"prompt": "a", "schema": schema}, {"prompt": "a", "schema": "no.json"})
    assert gg("batch", model, "s.jsonl", "-o", "s.out.jsonl").code == 6
    rows = sorted(read(here / "s.out.jsonl"), key=lambda r: r["line"])
    assert rows[0]["object"] in (True, False)
    assert rows[1]["error"]["message"] == "no such file or directory"


# ---- going on ----------------------------------------------------------------------------------


def test_a_run_with_other_facts_does_not_go_on_and_names_the_difference(gg, here, model):
    prompts(here / "in.jsonl", 3)
    args = ("batch", model, "in.jsonl", "-o", "out.jsonl", "-n", "3")
    assert gg(*args, "--seed", "4").code == 0
    saved = (here / "out.jsonl").read_bytes()

    for more, told in (
        (("--seed", "5"), "seed: 4 then, 5 now"),
        (("--temperature", "0.5"), "settings.temperature: not given then, 0.5 now"),
        (("--precision", "int16"), 'precision: "int8" then, "int16" now'),
        (("--system", "x"), 'settings.system: not given then, "x" now'),
    ):
        done = gg(*args, *more)
        assert done.code == 2
        assert told in done.err
        assert "--overwrite" in done.err
    other = here / "other.gguf"
    with_template(other, template="{{ messages[0].content }}")
    assert "model: " in gg("batch", str(other), *args[2:]).err
    prompts(here / "in.jsonl", 4)
    assert "input: " in gg(*args).err
    assert (here / "out.jsonl").read_bytes() == saved

    assert gg(*args, "--overwrite").code == 0
    assert len(read(here / "out.jsonl")) == 4


def test_the_manifest_says_what_made_the_output_and_a_seed_that_nobody_gave_is_kept(
    gg, here, model
):
    prompts(here / "in.jsonl", 6)
    args = ("batch", model, "in.jsonl", "-o", "out.jsonl", "-n", "3")
    assert gg(*args, "--limit", "2").code == 0
    run = json.loads((here / "out.jsonl.run.json").read_text("utf-8"))
    jsonschema.validate(run, SCHEMA | {"$ref": "#/$defs/run"})

    done = gg(*args)

    assert "2 of 6 lines of in.jsonl are answered already" in done.err
    assert json.loads((here / "out.jsonl.run.json").read_text("utf-8")) == run
    assert gg(*args[:3], "-o", "b.jsonl", "-n", "3", "--seed", str(run["facts"]["seed"])).code == 0
    assert timeless(here / "out.jsonl") == timeless(here / "b.jsonl")


@pytest.mark.parametrize("tail", [b'{"line": 3, "se', b"\0\0\0\0", b'{"line": 3}'])
def test_a_half_written_last_line_is_cut_off(gg, here, model, tail):
    prompts(here / "in.jsonl", 3)
    args = ("batch", model, "in.jsonl", "-o", "out.jsonl", "-n", "3", "--seed", "1")
    assert gg(*args, "--ordered").code == 0
    whole = timeless(here / "out.jsonl")
    lines = (here / "out.jsonl").read_bytes().splitlines(keepends=True)
    (here / "out.jsonl").write_bytes(b"".join(lines[:2]) + tail)

    assert gg(*args).code == 0
    assert timeless(here / "out.jsonl") == whole


def test_a_foreign_output_is_left_alone(gg, here, model):
    prompts(here / "in.jsonl", 2)
    (here / "out.jsonl").write_text("dear diary\n", encoding="utf-8")
    done = gg("batch", model, "in.jsonl", "-o", "out.jsonl")
    assert done.code == 2
    assert "out.jsonl has lines, and no out.jsonl.run.json" in done.err
    assert (here / "out.jsonl").read_text(encoding="utf-8") == "dear diary\n"


# ---- what is refused ---------------------------------------------------------------------------


def test_the_output_is_opened_before_any_work(gg, here, model):
    prompts(here / "in.jsonl", 2)
    done = gg("batch", "no-such-model", "in.jsonl", "-o", "misspelt/out.jsonl")
    assert done.code == 7
    assert done.err.startswith("error: misspelt/out.jsonl (make the folder: mkdir -p misspelt)")
    assert "no such file or directory" in done.err

    assert gg("batch", "no-such-model", "in.jsonl", "-o", ".").code == 7
    assert gg("batch", model, "in.jsonl", "-o", "./in.jsonl").err == (
        'error: "./in.jsonl" is the input\n  give another file with -o\n'
    )
    assert gg("batch", "no-such-model", "in.jsonl", "-o", "out.jsonl").code == 3
    assert sorted(p.name for p in here.iterdir()) == ["in.jsonl"]


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("in.jsonl",), "-o OUT is missing"),
        (("none.jsonl", "-o", "o"), '"none.jsonl": no such file or directory'),
        (("in.csv", "-o", "o"), "which column of in.csv is the prompt?"),
        (("in.csv", "-p", "{txt}", "-o", "o"), 'in.csv has no column "txt"'),
        (("in.csv", "-p", "{text}", "--keep", "lable", "-o", "o"), 'has no column "lable"'),
        (("in.csv", "-p", "same", "-o", "o"), "all prompts would be the same"),
        (("in.jsonl", "-o", "o", "--overwrite", "--retry-errors"), "exclude each other"),
        (("in.jsonl", "-o", "o", "--no-bos"), "--no-bos and --special need --raw"),
        (("in.jsonl", "-o", "o", "--format", "xml"), "--format: unknown choice"),
    ],
)
def test_wrong_usage_is_told_before_any_work(gg, here, args, told):
    prompts(here / "in.jsonl", 1)
    (here / "in.csv").write_text("text,label\na,b\n", encoding="utf-8")
    done = gg("batch", "no-such-model", *args)
    assert done.code == 2
    assert told in done.err
    assert len(done.err.splitlines()) <= 3
    assert sorted(p.name for p in here.iterdir()) == ["in.csv", "in.jsonl"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_a_full_device_is_exit_code_7(gg, here, model):
    prompts(here / "in.jsonl", 2)
    done = gg("batch", model, "in.jsonl", "-o", "/dev/full", "-n", "2")
    assert done.code == 7
    assert "/dev/full cannot be written: no space left on device" in done.err


def test_a_dry_run_counts_and_answers_nothing(gg, here, model):
    jsonl(here / "in.jsonl", *({"prompt": "x" * 40 + str(k)} for k in range(5)), {"prompt": ""})
    done = gg("batch", model, "in.jsonl", "--dry-run", "-n", "3", "--raw")

    assert done.code == 6
    rows = dict(line.split(None, 1) for line in done.out.splitlines())
    assert rows["lines"] == "6"
    assert rows["errors"] == "1 (line 6: the prompt is empty)"
    tokens = [
        len(json.loads(gg("tokenize", model, "x" * 40 + str(k), "--json").out)["ids"])
        for k in range(5)
    ]
    assert rows["tokens"] == f"{sum(tokens):,} to read"
    assert rows["longest"].startswith(f"{max(tokens)} tokens, line ")
    assert rows["shared"].startswith("about ")
    assert "a trial of 5 lines" in rows["time"]
    assert sorted(p.name for p in here.iterdir() if p.suffix == ".jsonl") == ["in.jsonl"]


def test_strict_turns_a_notice_of_a_line_into_exit_code_6(gg, here):
    prompts(here / "in.jsonl", 2)
    args = ("batch", str(QWEN3), "in.jsonl", "-n", "2")
    done = gg(*args, "-o", "a.jsonl")
    assert done.code == 0
    assert done.err.count("this model has no chat template") == 1
    assert [r["notices"][0]["code"] for r in read(here / "a.jsonl")] == ["no-template"] * 2
    assert gg(*args, "-o", "b.jsonl", "--strict").code == 6


def test_a_line_may_bring_its_own_schema_or_choices(gg, here, model):
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    rows = [
        {"prompt": "a number", "schema": schema, "max_tokens": 30},
        {"prompt": "pick", "choice": ["a", "b"]},
    ]
    done = gg("batch", model, str(jsonl(here / "in.jsonl", *rows)), "-o", "out.jsonl")

    first, second = sorted(read(here / "out.jsonl"), key=lambda r: r["line"])
    assert [r.get("error") for r in (first, second)] == [None, None]
    assert done.code == 0
    jsonschema.validate(first["object"], schema)
    assert second["text"] in ("a", "b")
