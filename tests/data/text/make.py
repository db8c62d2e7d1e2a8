"""Cuts tests/data/text/references.json.xz out of the folder of stored references.

python tests/data/text/make.py GOLDEN_FOLDER
"""

from __future__ import annotations

import json
import lzma
import sys
from pathlib import Path

MODELS = {"smollm2": "model-smollm2-135m-instruct", "gemma-3-270m": "model-gemma-3-270m"}
SETS = ("default", "falcon", "gpt2", "llama3", "qwen35", "stablelm2", "starcoder")
TEMPLATES = (
    "Mistral-7B-Instruct-v0.2",
    "Phi-3-mini",
    "Qwen-Qwen2.5-7B-Instruct",
    "Qwen-Qwen3-0.6B",
    "SmolLM2-135M-Instruct",
    "chatml-OpenHermes-2.5",
    "phi-4",
)
FIELDS = ("facts", "ids", "ids_parse", "reference", "extra", "pieces_sha256")


def replies(text: Path) -> dict:
    """All stored replies by family; the templates that they name stay outside, for their licences."""
    files = {
        p.stem: json.loads(p.read_text()) for p in sorted((text / "chat_parse").glob("*.json"))
    }
    tools = files.pop("tools")["tools"]
    files.pop("INDEX")
    return {"tools": tools, "families": files}


def main(golden: Path) -> None:
    text = golden / "text"

    def read(name: str):
        return json.loads((text / name).read_text())

    pretok = read("tokenizer/pretok/INDEX.json")
    tokenizer = {model: read(f"tokenizer/{name}.json") for model, name in MODELS.items()}
    out = {
        "inputs": read("tokenizer/inputs.json"),
        "models": {m: {k: d[k] for k in FIELDS if k in d} for m, d in tokenizer.items()},
        "splits": {s: read(f"tokenizer/pretok/{s}.json")["splits"] for s in SETS},
        "split_inputs": pretok["input_index"],
        "detok": read("stream/detok.json"),
        "stop": read("stream/stop.json"),
        "conversations": read("templates/conversations.json"),
        "templates": {t: read(f"templates/{t}.json") for t in TEMPLATES},
        "snippets": read("templates/jinja_snippets.json"),
        "context": read("templates/jinja_context.json"),
        "replies": replies(text),
    }
    raw = json.dumps(out, ensure_ascii=False, separators=(",", ":")).encode()
    target = Path(__file__).with_name("references.json.xz")
    target.write_bytes(lzma.compress(raw, preset=9 | lzma.PRESET_EXTREME))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
