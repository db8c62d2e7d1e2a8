"""Commands that read a model file and need no engine: inspect, tokenize, list, doctor."""

from __future__ import annotations

import json

import pytest

MODELS = ("smollm2", "gemma-3-270m")


@pytest.mark.parametrize("name", MODELS)
def test_inspect_names_architecture_types_and_tokenizer(gg, model_path, name):
    path = model_path(name)
    done = gg("inspect", name)
    assert done.code == 0
    assert done.err == ""
    assert path.name in done.out
    assert "runs here     yes" in done.out
    assert gg("show", str(path)).out == done.out


def test_inspect_json_has_the_facts_of_the_words(gg, model_path):
    model_path("gemma-3-270m")
    facts = json.loads(gg("inspect", "gemma-3-270m", "--json", "--tensors", "--kv").out)
    assert facts["architecture"] == "gemma3"
    assert facts["n_tensors"] == len(facts["tensors"]) == 236
    assert facts["metadata"]["gemma3.attention.sliding_window"]["value"] == 512
    assert {row["type"]: row["tensors"] for row in facts["types"]} == {
        "F32": 109,
        "Q5_0": 81,
        "Q4_K": 27,
        "Q8_0": 10,
        "Q6_K": 9,
    }  # counted with gguf 0.19's reader


def test_inspect_of_another_file_is_exit_code_3(gg, tmp_path):
    (tmp_path / "x.gguf").write_bytes(b"PK\x03\x04 something else")
    done = gg("inspect", "x.gguf")
    assert done.code == 3
    assert done.out == ""
    assert done.err.startswith("error: x.gguf: ")
    assert 1 <= done.err.count("\n") <= 3


def test_tokenize_prints_ids_pieces_and_counts(gg, model_path):
    model_path("smollm2")
    text = "Hello wörld"
    facts = json.loads(gg("tokenize", "smollm2", text, "--json").out)
    assert "".join(facts["pieces"]) == text
    ids = gg("tokenize", "smollm2", text, "--ids").out.split()
    assert list(map(int, ids)) == facts["ids"]
    assert gg("tokenize", "smollm2", text, "--count").out == f"{facts['count']}\n"
    lines = gg("tokenize", "smollm2", stdin=text).out.splitlines()
    assert [int(line.split()[0]) for line in lines] == facts["ids"]


def test_tokenize_spells_control_tokens_out_unless_asked(gg, model_path):
    model_path("smollm2")
    assert gg("tokenize", "smollm2", "<|im_end|>", "--ids", "--special").out == "2\n"
    assert len(gg("tokenize", "smollm2", "<|im_end|>", "--ids").out.split()) > 1


def test_tokenize_gives_the_start_token_that_the_file_wants(gg, model_path):
    model_path("gemma-3-270m")
    with_bos = gg("tokenize", "gemma-3-270m", "hi", "--ids").out.split()
    without = gg("tokenize", "gemma-3-270m", "hi", "--ids", "--no-bos").out.split()
    assert with_bos == ["2", *without]


def test_list_shows_the_catalog_and_other_files(gg, tmp_path):
    models = tmp_path / "models"
    models.mkdir()
    (models / "mine.gguf").write_bytes(b"GGUF")
    done = gg("list", GGUF_RUNTIME_MODELS=str(models))
    assert done.code == 0
    rows = [line.split() for line in done.out.splitlines()]
    assert (rows[1][0], rows[1][-3:]) == ("smollm2", ["gg", "pull", "smollm2"])
    assert rows[-1][0] == "mine"
    facts = json.loads(gg("list", "--json", GGUF_RUNTIME_MODELS=str(models)).out)
    assert [m["name"] for m in facts["models"] if m["present"]] == ["mine"]


def test_doctor_says_what_was_chosen_and_why(gg):
    done = gg("doctor")
    assert done.code == 0
    facts = json.loads(gg("doctor", "--json").out)
    assert facts["isa"]["chosen"] in facts["isa"]["can"]
    assert f"{facts['isa']['chosen']}: {facts['isa']['why']}" in done.out
    generic = json.loads(gg("doctor", "--json", GGUF_RUNTIME_ISA="generic").out)
    assert generic["isa"]["chosen"] == "generic"


def test_doctor_refuses_an_instruction_set_without_kernels_and_lists_the_others(gg):
    done = gg("doctor", GGUF_RUNTIME_ISA="no-such-thing")
    assert done.code == 2
    assert "can run: nofma, generic" in done.out
