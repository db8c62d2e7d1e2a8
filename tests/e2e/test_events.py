"""`--jsonl`: every line is JSON of its own, and holds whole characters."""

from __future__ import annotations

import importlib.resources
import json
import os
import subprocess
import sys

import jsonschema

from tests.tiny import with_template

SCHEMA = json.loads(
    importlib.resources.files("gguf_runtime.cli").joinpath("run.schema.json").read_text("utf-8")
)
EVENT = SCHEMA | {"$ref": "#/$defs/event"}
ANY = ("--temp", "2", "--top-k", "0", "--top-p", "1", "--min-p", "0")


def test_every_line_holds_whole_code_points_and_they_join_to_the_answer(tmp_path):
    """A model of random weights writes bytes of every kind, halves of characters among them."""
    model = with_template(tmp_path / "m.gguf")
    command = [
        sys.executable,
        "-m",
        "gguf_runtime",
        "run",
        str(model),
        "hi",
        "--jsonl",
        "-n",
        "200",
    ]
    wide = 0
    for seed in range(4):
        done = subprocess.run(
            [*command, *ANY, "--seed", str(seed)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"},
            check=True,
        )
        events = [json.loads(line.decode("utf-8")) for line in done.stdout.split(b"\n")[:-1]]
        for e in events:
            jsonschema.validate(e, EVENT)
        text = "".join(e["text"] for e in events if e["event"] == "delta")

        assert text == events[-1]["answer"]["text"]
        assert text.encode("utf-8").decode("utf-8") == text  # no half of a surrogate pair
        assert "\\ud" not in done.stdout.decode()
        wide += sum(c > "\x7f" and c != "\ufffd" for c in text)
    assert wide > 0
