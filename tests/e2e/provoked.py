"""Errors that people provoke: what they typed, what they read, why, and what cures it.

A row's command and cure are shell, run in a folder that `prepare` has filled; `gg` is the program.
"""

from __future__ import annotations

import json
import zipfile
from dataclasses import dataclass
from pathlib import Path

from tests.gguf_bytes import STRING, pair
from tests.tiny import QWEN3, edited, with_template


@dataclass(frozen=True)
class Provoked:
    """One error: the exit code, and the exact text on stderr, where … stands for what differs by machine."""

    command: str
    code: int
    text: str
    cause: str
    cure: str


def prepare(folder: Path) -> None:
    """Models and files of every kind that the rows name."""
    model = with_template(folder / "m.gguf")
    whole = model.read_bytes()
    (folder / "raw.gguf").write_bytes(QWEN3.read_bytes())
    for name in ("models", "one", "two", "none"):
        (folder / name).mkdir()
    (folder / "models" / "my-model.gguf").write_bytes(whole)
    (folder / "one" / "a.gguf").write_bytes(whole)
    (folder / "two" / "a.gguf").write_bytes(whole)
    (folder / "two" / "b.gguf").write_bytes(whole)
    (folder / "cut.gguf").write_bytes(whole[: len(whole) // 2])
    (folder / "empty.gguf").write_bytes(b"")
    (folder / "page.gguf").write_bytes(b"<!DOCTYPE html><html><body>Not found</body></html>")
    lfs = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
    (folder / "pointer.gguf").write_text(lfs)
    (folder / "swapped.gguf").write_bytes(b"GGUF\0\0\0\3" + whole[8:])
    (folder / "old.gguf").write_bytes(b"GGUF\1\0\0\0" + whole[8:])
    head = b'{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
    tensors = len(head).to_bytes(8, "little") + head + bytes(4)
    (folder / "weights.safetensors").write_bytes(tensors)
    with zipfile.ZipFile(folder / "model.zip", "w") as z:
        z.write(model, "unpacked.gguf")
    edited(QWEN3, folder / "kind.gguf", [pair("tokenizer.chat_template", STRING, "{{ messages")])
    (folder / "latin1.txt").write_bytes("Übermut".encode("latin-1"))
    (folder / "bad.json").write_text("[{")
    (folder / "shape.json").write_text('{"role": "user"}')
    (folder / "good.json").write_text(json.dumps([{"role": "user", "content": "hi"}]))
    (folder / "list.csv").write_text("name,text\na,hi\nb,yo\n")
    (folder / "bad.jinja").write_text("{% for m in messages %}{{ m.content }}")
    (folder / "key.toml").write_text("temprature = 0.5\n")
    (folder / "broken.toml").write_text("temperature = \n")
    (folder / "good.toml").write_text("temperature = 0.5\n")


ROWS = (
    Provoked(
        "gg rnu m.gguf hi",
        2,
        'error: no command "rnu"\n  did you mean gguf-runtime run?',
        "A command is misspelt.",
        "gg run m.gguf hi $T",
    ),
    Provoked(
        "gg run m.gguf hi --temprature 0",
        2,
        "error: gguf-runtime run has no option --temprature\n  did you mean --temperature?",
        "An option is misspelt.",
        "gg run m.gguf hi --temperature 0 -n 1",
    ),
    Provoked(
        "gg list --jsn",
        2,
        "error: gguf-runtime list has no option --jsn\n  did you mean --json?",
        "An option is misspelt.",
        "gg list --json",
    ),
    Provoked(
        "gg run",
        2,
        "error: gguf-runtime run: MODEL is missing\n  see: gguf-runtime run --help",
        "A command lacks an argument that it cannot do without.",
        "gg run m.gguf hi $T",
    ),
    Provoked(
        "gg run m.gguf",
        2,
        'error: no prompt\n  give one: gg run MODEL "Why is the sky blue?"',
        "Nothing was asked, and stdin is no terminal where one could.",
        "gg run m.gguf hi $T",
    ),
    Provoked(
        "gg tokenize m.gguf",
        2,
        'error: no text\n  give it: gg tokenize MODEL "The quick brown fox"',
        "There is no text to show the tokens of.",
        "gg tokenize m.gguf hi",
    ),
    Provoked(
        "gg run m.gguf a -p b",
        2,
        "error: two prompts\n  PROMPT and -p are the same: give one of them",
        "The prompt was given twice.",
        "gg run m.gguf a $T",
    ),
    Provoked(
        "gg run m.gguf hi --json --jsonl",
        2,
        "error: --json and --jsonl exclude each other",
        "One answer has one form.",
        "gg run m.gguf hi --json $T",
    ),
    Provoked(
        "gg run m.gguf hi --top-p 2",
        2,
        "error: --top-p: out of range\n  expected 0 to 1, got 2",
        "A number is outside its range.",
        "gg run m.gguf hi --top-p 1 $T",
    ),
    Provoked(
        "gg run m.gguf hi --seed 4294967296",
        2,
        "error: --seed: out of range\n  expected 0 to 4,294,967,295, got 4294967296",
        "Seeds are below 2^32.",
        "gg run m.gguf hi --seed 4294967295 $T",
    ),
    Provoked(
        "gg run m.gguf hi -n many",
        2,
        "error: --max-tokens: not a whole number\n  expected a whole number, got 'many'",
        "A word stands where a number belongs.",
        "gg run m.gguf hi -n 1",
    ),
    Provoked(
        "gg run m.gguf hi --cache-type q8",
        2,
        "error: --cache-type: unknown choice\n"
        "  expected f16, f32, q8_0, got 'q8'\n"
        "  did you mean q8_0?",
        "A choice has another name.",
        "gg run m.gguf hi --cache-type f32 $T",
    ),
    Provoked(
        "gg run m.gguf hi --think maybe",
        2,
        "error: --think: unknown choice\n  expected on, off, auto, got 'maybe'",
        "A choice has another name.",
        "gg run m.gguf hi --think auto $T",
    ),
    Provoked(
        "gg run m.gguf hi --cache-type q8_0",
        1,
        "error: cache type q8_0 does not fit this model\n"
        "  expected a head dimension divisible by 32, got 24 for keys, 24 for values\n"
        "  use --cache-type f16",
        "Blocks of q8_0 have 32 values, and a head of this model has not a multiple of that.",
        "gg run m.gguf hi --cache-type f16 $T",
    ),
    Provoked(
        "gg run m.gguf hi -ngl 99",
        2,
        "error: -ngl has no meaning here: there is no GPU to give layers to",
        "An option of another program has no meaning here.",
        "gg run m.gguf hi $T",
    ),
    Provoked(
        "gg run m.gguf hi -fa",
        2,
        "error: -fa has no meaning here: attention is always computed in one pass",
        "An option of another program has no meaning here.",
        "gg run m.gguf hi $T",
    ),
    Provoked(
        "gg run m.gguf hi --mlock",
        2,
        "error: --mlock has no meaning here: weights are repacked into memory of their own; nothing is locked",
        "An option of another program has no meaning here.",
        "gg run m.gguf hi $T",
    ),
    Provoked(
        "gg run m.gguf hi -c big",
        2,
        "error: --context: not a number of tokens\n  expected 4096, 4k or max, got 'big'",
        "A context is a number of tokens.",
        "gg run m.gguf hi -c 4k $T",
    ),
    Provoked(
        "gg run m.gguf hi --max-memory lots",
        2,
        "error: --max-memory: not a size\n  expected 800MB, 2GB or 2GiB, got 'lots'",
        "An amount of memory is a number with a unit.",
        "gg run m.gguf hi --max-memory 2GB $T",
    ),
    Provoked(
        "gg run m.gguf hi --raw --system x",
        2,
        "error: --raw takes no --system and no --messages: it has no template",
        "A raw prompt has no template, which is what has a place for a system message.",
        "gg run m.gguf hi --system x $T",
    ),
    Provoked(
        "gg run m.gguf hi --no-bos",
        2,
        "error: --no-bos and --special need --raw",
        "The template decides about the start token, unless the prompt is raw.",
        "gg run m.gguf hi --raw --no-bos $T",
    ),
    Provoked(
        'gg run m.gguf hi --stop ""',
        2,
        "error: --stop: the text is empty",
        "Every text contains the empty one.",
        "gg run m.gguf hi --stop . $T",
    ),
    Provoked(
        "gg run m.gguf hi --template-arg x=yes",
        2,
        "error: --template-arg: not KEY=JSON\n"
        "  expected enable_thinking=false or name='\"text\"', got 'x=yes'",
        "The value of a template's variable is JSON.",
        "gg run m.gguf hi --template-arg x=true $T",
    ),
    Provoked(
        "gg run m.gguf hi -N 2 --record r.json",
        2,
        "error: --record and --profile take one answer, not -N",
        "A record is of one answer.",
        "gg run m.gguf hi --record r.json $T",
    ),
    Provoked(
        "GGUF_RUNTIME_CONFIG=key.toml gg run m.gguf hi",
        2,
        "error: key.toml: no setting 'temprature'\n  did you mean temperature?",
        "The configuration file has a key that is no setting.",
        "GGUF_RUNTIME_CONFIG=key.toml gg run m.gguf hi --no-config $T",
    ),
    Provoked(
        "GGUF_RUNTIME_CONFIG=broken.toml gg list",
        2,
        "error: broken.toml: not TOML: Invalid value (at line 1, column 15)\n"
        "  leave it out: --no-config",
        "The configuration file is not TOML.",
        "GGUF_RUNTIME_CONFIG=broken.toml gg list --no-config",
    ),
    Provoked(
        "GGUF_RUNTIME_CONFIG=gone.toml gg list",
        2,
        "error: gone.toml: no such file\n"
        "  GGUF_RUNTIME_CONFIG names it: unset that, or leave the file out: --no-config",
        "The variable names a file that is not there.",
        "GGUF_RUNTIME_CONFIG=good.toml gg list",
    ),
    Provoked(
        "GGUF_RUNTIME_THREADS=all gg run m.gguf hi",
        2,
        "error: GGUF_RUNTIME_THREADS: not a whole number\n  expected a whole number, got 'all'",
        "The variable holds no number.",
        "GGUF_RUNTIME_THREADS=2 gg run m.gguf hi $T",
    ),
    Provoked(
        "GGUF_RUNTIME_ISA=neon9 gg run m.gguf hi",
        2,
        "error: GGUF_RUNTIME_ISA=neon9: no kernels of that name for this kind of CPU\n"
        "  this CPU runs: …",
        "The variable names no kernels of this CPU.",
        "GGUF_RUNTIME_ISA= gg run m.gguf hi $T",
    ),
    Provoked(
        "gg completion tcsh",
        2,
        "error: SHELL: unknown choice\n  expected bash, zsh, fish, got 'tcsh'",
        "There is no script for this shell.",
        "gg completion bash",
    ),
    Provoked(
        'gg run m.gguf -c 16 "$(printf x%.0s $(seq 50))"',
        1,
        "error: the prompt is longer than the context\n"
        "  expected at most 16 tokens, got 69, 53 too many\n"
        "  use a larger context (-c N) or a shorter prompt",
        "The prompt has more tokens than the context.",
        'gg run m.gguf -c 512 "$(printf x%.0s $(seq 50))" $T',
    ),
    Provoked(
        "gg run m.gguf -f latin1.txt",
        1,
        "error: latin1.txt: byte 0 is not UTF-8\n"
        "  convert it first, for example: iconv -f latin1 -t utf-8",
        "The file is in another encoding.",
        "iconv -f latin1 -t utf-8 latin1.txt | gg run m.gguf $T",
    ),
    Provoked(
        'gg run m.gguf "$(printf "a\\377b")"',
        1,
        "error: PROMPT: byte 1 is not UTF-8",
        "The shell passed bytes that are no UTF-8.",
        'gg run m.gguf "$(printf "a\\377b" | iconv -f latin1 -t utf-8)" $T',
    ),
    Provoked(
        "gg run m.gguf -f gone.txt",
        3,
        "error: gone.txt: no such file or directory",
        "There is no such file.",
        "echo hi > gone.txt && gg run m.gguf -f gone.txt $T",
    ),
    Provoked(
        "gg run m.gguf hi --messages bad.json",
        1,
        "error: bad.json: not JSON: Expecting property name enclosed in double quotes: line 1 column 3 (char 2)",
        "The file is not JSON.",
        "gg run m.gguf hi --messages good.json $T",
    ),
    Provoked(
        "gg run m.gguf hi --messages shape.json",
        1,
        'error: shape.json: not a list of messages\n  expected [{"role": "user", "content": "…"}]',
        "The file is JSON, but no conversation.",
        "gg run m.gguf hi --messages good.json $T",
    ),
    Provoked(
        "gg run m.gguf hi -n -1 -c 40 --temp 2 --top-k 0 --top-p 1 --seed 3 --on-overflow error",
        1,
        "error: the context is full before the answer ended\n"
        "  got 40 tokens\n"
        "  ask for more with -c N, or take what fits with --on-overflow stop",
        "The context filled before the answer ended, and that was to be an error.",
        "gg run m.gguf hi -n -1 -c 40 --temp 2 --top-k 0 --top-p 1 --seed 3 --on-overflow stop",
    ),
    Provoked(
        "gg chat raw.gguf",
        1,
        "error: raw.gguf: this model has no chat template, so it takes no messages\n"
        "  name one with --template, such as chatml, or complete a text: gguf-runtime run MODEL --raw TEXT",
        "This model was not made for conversations: its file has no chat template.",
        "gg run raw.gguf hi --raw $T",
    ),
    Provoked(
        "gg run raw.gguf --messages good.json",
        1,
        "error: this model has no chat template, so it takes no messages\n"
        "  name one with --template, such as chatml, or complete a text: gguf-runtime run MODEL --raw TEXT",
        "Messages need a chat template, and the file has none.",
        "gg run raw.gguf --template chatml --messages good.json $T",
    ),
    Provoked(
        "gg run m.gguf hi --template chatlm",
        1,
        'error: template: no built-in template is called "chatlm"\n'
        "  expected alpaca, chatml, command-r, deepseek, gemma, granite, llama2, llama3, mistral, phi3, phi4, vicuna, zephyr, or a file",
        "No built-in template and no file has this name.",
        "gg run m.gguf hi --template chatml $T",
    ),
    Provoked(
        "gg run m.gguf hi --template bad.jinja",
        1,
        "error: chat template, line 1: the chat template cannot be read: Unexpected end of template. Jinja was looking for the following tags: 'endfor' or 'else'. The innermost block that needs to be closed is 'for'.",
        "The template is no valid Jinja.",
        "gg run m.gguf hi $T",
    ),
    Provoked(
        "gg run kind.gguf hi",
        1,
        "error: chat template, line 1: the chat template cannot be read: unexpected end of template, expected 'end of print statement'.",
        "The template in the model's file is no valid Jinja.",
        "gg run kind.gguf hi --template chatml $T",
    ),
    Provoked(
        "gg run my-modle hi",
        3,
        'error: no model and no file named "my-modle"\n  did you mean my-model?',
        "A model's name is misspelt.",
        "gg run my-model hi $T",
    ),
    Provoked(
        "gg run smollm2 hi",
        3,
        "error: smollm2 is not on this machine\n"
        "  got no file models/SmolLM2-135M-Instruct.Q4_1.gguf\n"
        "  gguf-runtime pull smollm2   (93 MB, Apache-2.0)",
        "The catalog knows the model, but it was not fetched yet; `pull` does that.",
        "gg run my-model hi $T",
    ),
    Provoked(
        "gg run gone.gguf hi",
        3,
        "error: gone.gguf: no such file\n  did you mean page.gguf?",
        "There is no such file.",
        "gg run m.gguf hi $T",
    ),
    Provoked(
        "gg inspect gone.gguf",
        3,
        "error: gone.gguf: no such file\n  did you mean page.gguf?",
        "There is no such file.",
        "gg inspect m.gguf",
    ),
    Provoked(
        "gg run model.zip hi",
        3,
        "error: model.zip: is a zip archive\n"
        "  expected a GGUF file\n"
        "  unpack it and name the GGUF file in it",
        "The model is still packed.",
        "python3 -m zipfile -e model.zip . && gg run unpacked.gguf hi $T",
    ),
    Provoked(
        "gg run page.gguf hi",
        3,
        "error: page.gguf: is a web page: the download link led to a page, not to the file\n"
        "  expected a GGUF file\n"
        "  copy the link of the file itself (on huggingface.co: /resolve/, not /blob/)",
        "What was saved is the page about the file.",
        "cp m.gguf page.gguf && gg run page.gguf hi $T",
    ),
    Provoked(
        "gg run pointer.gguf hi",
        3,
        "error: pointer.gguf: is a git-lfs pointer: the text that stands for the file, not the file\n"
        "  expected a GGUF file\n"
        "  fetch the file itself, in its folder: git lfs pull",
        "The repository was cloned without git-lfs.",
        "cp m.gguf pointer.gguf && gg run pointer.gguf hi $T",
    ),
    Provoked(
        "gg run weights.safetensors hi",
        3,
        "error: weights.safetensors: is a safetensors file\n"
        "  expected a GGUF file\n"
        "  get a GGUF file of this model, or convert it with llama.cpp's convert_hf_to_gguf.py",
        "The file is of another format; it has to be converted first.",
        "gg run m.gguf hi $T",
    ),
    Provoked(
        "gg run cut.gguf hi",
        3,
        "error: cut.gguf: tensor blk.0.attn_q.weight (F16, 48 x 144) ends past the end of the file\n"
        "  expected at least 149,280 bytes, got 74,640\n"
        "  the file is cut off or damaged: download it again",
        "The download was not finished.",
        "cp m.gguf cut.gguf && gg run cut.gguf hi $T",
    ),
    Provoked(
        "gg run empty.gguf hi",
        3,
        "error: empty.gguf: is an empty file\n"
        "  expected a GGUF file\n"
        "  the download has not begun, or failed: download it again",
        "The download has not begun.",
        "cp m.gguf empty.gguf && gg run empty.gguf hi $T",
    ),
    Provoked(
        "gg run swapped.gguf hi",
        3,
        "error: swapped.gguf: big-endian GGUF, version 3\n"
        "  expected a little-endian file\n"
        "  get the little-endian file of this model, or convert it with gguf-convert-endian",
        "The file was made for machines with the other order of bytes.",
        "cp m.gguf swapped.gguf && gg run swapped.gguf hi $T",
    ),
    Provoked(
        "gg run old.gguf hi",
        3,
        "error: old.gguf: GGUF version 1 is not supported\n"
        "  expected version 2 or 3, got 1\n"
        "  convert the original model again",
        "The file is of a version from before August 2023.",
        "cp m.gguf old.gguf && gg run old.gguf hi $T",
    ),
    Provoked(
        "gg run none hi",
        3,
        "error: none: no GGUF file in this folder\n"
        "  gguf-runtime list --found shows the models on this machine",
        "The folder holds no model.",
        "cp m.gguf none/ && gg run none hi $T",
    ),
    Provoked(
        "gg run two hi",
        3,
        "error: two: 2 GGUF files in this folder\n"
        "  expected one, got a.gguf (149 kB), b.gguf (149 kB)\n"
        "  name one: two/a.gguf",
        "The folder holds several models.",
        "gg run two/a.gguf hi $T",
    ),
    Provoked(
        "gg rm my-model",
        3,
        "error: models/my-model.gguf: this file was not put here by pull, so it is not deleted\n"
        "  delete it yourself: rm 'models/my-model.gguf'",
        "`rm` deletes what `pull` put there, and nothing else.",
        "rm models/my-model.gguf",
    ),
    Provoked(
        "gg run hf:org/none hi",
        3,
        "error: hf:org/none is not on this machine\n"
        "  gguf-runtime pull hf:org/none   (its Q4_K_M file, where there is one)",
        "The file is not in the hub's cache; `pull` fetches it.",
        "gg run my-model hi $T",
    ),
    Provoked(
        "gg run m.gguf hi --max-memory 20MB",
        4,
        "error: this model with a context of 512 tokens does not fit into memory\n"
        "  expected 0 MB weights + 0 MB cache + … MB buffers + … MB program = … MB, got 20 MB available\n"
        "  allow more with --max-memory, or use a smaller model",
        "Weights, cache, buffers and the program take more than may be used.",
        "gg run m.gguf hi --max-memory 1GB $T",
    ),
    Provoked(
        "gg pull smollm2 --offline",
        5,
        "error: smollm2 is not on this machine and the network is switched off\n"
        "  without --offline and HF_HUB_OFFLINE: gguf-runtime pull smollm2",
        "The network was switched off.",
        "gg list",
    ),
    Provoked(
        "gg run raw.gguf hi -n 1 --strict",
        6,
        "notice: this model has no chat template; the prompt is continued as plain text",
        "With --strict a notice is no success.",
        "gg run raw.gguf hi --raw -n 1 --strict",
    ),
    Provoked(
        "gg run m.gguf hi --record no/r.json",
        7,
        "error: no/r.json cannot be written: no such file or directory",
        "There is no folder to write to.",
        "mkdir no && gg run m.gguf hi --record no/r.json $T",
    ),
    Provoked(
        "gg run m.gguf hi $T > /dev/full",
        7,
        "error: the output cannot be written: no space left on device",
        "The disk is full.",
        "gg run m.gguf hi $T > out.txt",
    ),
    Provoked(
        "gg batch m.gguf gone.jsonl -o o.jsonl",
        2,
        'error: "gone.jsonl": no such file or directory\n  IN is a file of prompts, or - for stdin',
        "There is no such file.",
        "echo hi | gg batch m.gguf - -o o.jsonl $T",
    ),
    Provoked(
        "gg batch m.gguf list.csv -o o.jsonl",
        2,
        "error: which column of list.csv is the prompt?\n"
        '  it has "name", "text"\n'
        "  say so with -p '{name}', or -p 'Classify: {name}'",
        "A table has columns, and nobody said which one is asked about.",
        "gg batch m.gguf list.csv -o o.jsonl -p 'Say {text}' $T",
    ),
    Provoked(
        "gg batch m.gguf list.csv -o o.jsonl -p 'Say {txt}'",
        2,
        'error: --prompt: list.csv has no column "txt"\n'
        "  it has name, text; did you mean {text}?\n"
        "  for braces that are text write {{txt}}",
        "A column's name is misspelt.",
        "gg batch m.gguf list.csv -o o.jsonl -p 'Say {text}' $T",
    ),
    Provoked(
        "gg replay good.json",
        3,
        "error: good.json: no record of a run\n"
        "  gguf-runtime run MODEL PROMPT --record r.json makes one",
        "The file is no record of a run.",
        "gg run m.gguf hi --record r2.json $T && gg replay r2.json",
    ),
    Provoked(
        "gg replay gone.json",
        3,
        "error: gone.json: no such file or directory",
        "There is no such file.",
        "gg run m.gguf hi --record gone.json $T && gg replay gone.json",
    ),
)
