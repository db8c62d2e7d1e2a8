"""The model's file while the model is in use: replaced, deleted, written over, cut."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gguf_runtime import Model
from gguf_runtime.errors import FileError
from tests.tiny import GEMMA3, SMALL, ids_of

PROMPT = ids_of(40)


@pytest.fixture
def path(tmp_path):
    return Path(shutil.copy(SMALL, tmp_path / "m.gguf"))


def logits(model) -> bytes:
    return model.logits(PROMPT, positions="last").tobytes()


@pytest.mark.parametrize("change", ["replaced", "deleted", "folder gone"])
def test_a_file_that_was_replaced_or_deleted_goes_on_with_its_old_content(path, change, tmp_path):
    with Model(SMALL, threads=1) as other:
        right = logits(other)
    with Model(path, threads=1) as model:
        if change == "replaced":
            new = Path(shutil.copy(GEMMA3, tmp_path / "new"))
            os.replace(new, path)
        elif change == "deleted":
            path.unlink()
        else:
            shutil.rmtree(tmp_path)
        assert logits(model) == right
        assert model.complete("abc", max_tokens=4, temperature=0).ids


@pytest.mark.parametrize("change", ["written over", "cut", "emptied", "one byte"])
def test_a_file_that_was_written_over_is_an_error_and_no_wrong_answer(path, change):
    with Model(path, threads=1) as model:
        size = path.stat().st_size
        if change == "written over":
            shutil.copyfile(GEMMA3, path)
        elif change == "cut":
            os.truncate(path, size // 2)
        elif change == "emptied":
            os.truncate(path, 0)
        else:
            with path.open("r+b") as f:
                f.seek(size - 1)
                f.write(b"\x55")
        with pytest.raises(FileError, match="written to while the model was in use") as e:
            logits(model)
        assert "load the model again" in (e.value.hint or "")


def test_a_process_whose_model_was_cut_ends_with_words_and_not_with_a_signal(path):
    program = (
        "import os, sys; from gguf_runtime import Model, FileError\n"
        "m = Model(sys.argv[1], threads=1); os.truncate(sys.argv[1], 0)\n"
        "try: m.complete('abc', max_tokens=2)\n"
        "except FileError as e: print(e.exit_code)\n"
    )
    words = [sys.executable, "-c", program, str(path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stdout.strip()) == (0, "3"), done.stderr
