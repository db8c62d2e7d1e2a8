"""Commands that read a model file and need no engine: inspect, tokenize, list, doctor."""

from __future__ import annotations

import json
import os
import re

import pytest

from tests.tiny import with_template

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


def test_inspect_plans_memory_for_a_context(gg, model_path):
    model_path("smollm2")
    asked = ("inspect", "smollm2", "-c", "4096", "-t", "2")
    plain, json_too = gg(*asked), gg(*asked, "--json")
    memory = json.loads(json_too.out)["memory"]
    assert plain.code == json_too.code == 0
    assert memory["context"] == 4096
    # 2 (keys, values) x 30 layers x 3 heads x 64 numbers of 2 bytes for each position
    assert memory["cache_bytes"] == 4096 * 2 * 30 * 3 * 64 * 2
    parts = ("weights", "cache", "buffers", "program")
    assert memory["total_bytes"] == sum(memory[f"{part}_bytes"] for part in parts)
    assert memory["fits"] is True
    assert memory["largest_context"] == 8192
    assert "memory, with a context of 4,096 tokens" in plain.out
    assert re.search(r"cache +94 MB", plain.out)
    assert "fits          yes, up to -c 8192" in plain.out
    assert "memory" not in json.loads(gg("inspect", "smollm2", "--json").out)


def test_fits_is_an_exit_code_that_agrees_with_run(gg, model_path):
    model_path("smollm2")
    little = ("--max-memory", "250MB", "-t", "2")
    done = gg("inspect", "smollm2", "-c", "8192", "--fits", "--json", *little)
    assert done.code == 4
    memory = json.loads(done.out)["memory"]
    assert memory["fits"] is False
    largest = memory["largest_context"]
    assert 512 < largest < 8192
    assert gg("inspect", "smollm2", "-c", str(largest), "--fits", *little).code == 0
    refused = gg("run", "smollm2", "Hi", "-c", "8192", "-n", "1", *little)
    assert refused.code == 4
    assert f"-c {largest}" in refused.err
    assert gg("run", "smollm2", "Hi", "-c", str(largest), "-n", "1", *little).code == 0


def test_a_model_that_fits_with_no_context_is_pointed_to_its_disk(gg, model_path):
    model_path("smollm2")
    little = ("--max-memory", "130MB", "-c", "512", "-t", "2")
    done = gg("inspect", "smollm2", "--fits", *little)
    assert done.code == 4
    assert done.out.endswith("no, with no context; from disk, slowly: --pack-cache\n")
    assert "--pack-cache" in gg("run", "smollm2", "Hi", "-n", "1", *little).err
    assert gg("inspect", "smollm2", "--fits", "--pack-cache", *little).code == 0


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


def test_doctor_measures_and_lists_what_is_kept_with_the_command_that_clears_it(gg, tmp_path):
    model = with_template(tmp_path / "listed.gguf")
    assert gg("warmup", str(model), "--pack-cache").code == 0
    done = gg("doctor")
    facts = json.loads(gg("doctor", "--json").out)
    mine = [f["path"] for f in facts["packs"]["files"] if f["model"] == model.name]
    for path in mine:  # the cache is this machine's
        os.unlink(path)
    assert len(mine) == 1
    measured = facts["measured"]
    assert measured["threads"] == facts["threads"]["default"]
    assert 1e8 < measured["bytes_per_s"] < 1e13
    assert measured["macs_per_s"]["dot"] > measured["macs_per_s"]["fma"] > 1e8
    assert 0 <= measured["handover_s"] < 1e-3
    assert "us from one row of a step to the next" in done.out
    for kept in (facts["kernels"], facts["packs"]):
        assert kept["folder"] in kept["clear"]
        assert kept["size_bytes"] > 0
        assert f"to clear: {kept['clear']}" in done.out


def test_doctor_names_the_rule_that_decided_the_threads(gg):
    facts = json.loads(gg("doctor", "--json", GGUF_RUNTIME_THREADS="1").out)
    assert facts["threads"]["default"] == 1
    assert facts["threads"]["rule"] == "GGUF_RUNTIME_THREADS"
    facts = json.loads(gg("doctor", "--json", GGUF_RUNTIME_THREADS="").out)
    assert facts["threads"]["rule"] in ("quota", "affinity", "cores", "all")
    assert f"{facts['threads']['default']}: {facts['threads']['why']}" in gg("doctor").out


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity on this system")
def test_one_allowed_core_is_one_thread_and_doctor_says_why(gg):
    allowed = os.sched_getaffinity(0)
    if len(allowed) < 2:
        pytest.skip("this machine has one core")
    os.sched_setaffinity(0, {min(allowed)})
    try:
        facts = json.loads(gg("doctor", "--json").out)
    finally:
        os.sched_setaffinity(0, allowed)
    assert facts["threads"]["default"] == 1
    assert facts["threads"]["rule"] == "affinity"
    assert facts["threads"]["why"].startswith("1 of ")


def test_doctor_lists_the_machines_that_kernels_can_be_made_for(gg):
    facts = json.loads(gg("doctor", "--json").out)
    out = gg("doctor").out
    assert facts["targets"]["linux-arm64"] == ["generic", "neondot"]
    assert all(f"{name} (" in out for name in facts["targets"])
    done = gg("warmup", "--target", "amiga-68000", "-o", "k.bin")
    assert done.code == 2
    assert all(name in done.err for name in facts["targets"])


def test_doctor_refuses_an_instruction_set_without_kernels_and_lists_the_others(gg):
    done = gg("doctor", GGUF_RUNTIME_ISA="no-such-thing")
    assert done.code == 2
    assert "can run: nofma, generic" in done.out
