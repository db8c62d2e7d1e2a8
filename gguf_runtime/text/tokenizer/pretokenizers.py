"""Pre-tokenizers of byte-level BPE: where a text is cut into words before anything merges.

The common ones are written out as scanners over runs, the expression above each; the others run as
expressions (`expressions`, `published`). A pre-tokenizer is a list of passes, each cutting inside the words of the pass
before. Checked: tests/golden/text/test_pretokenizers.py, against splits of the expressions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from gguf_runtime.errors import ModelError, show
from gguf_runtime.text.tokenizer import counted, published
from gguf_runtime.text.tokenizer.classes import (
    LETTER,
    MARK,
    NUMBER,
    OTHER,
    PUNCT,
    SPACE,
    SYMBOL,
    Runs,
)
from gguf_runtime.text.tokenizer.expressions import Expression

# A pass appends the ends of the words of text[a:b], in order, the last one b.
Pass = Callable[[Runs, int, int, list[int]], None]


def _groups(**kinds: int) -> bytes:
    """Kind by class: letters, numbers and space are themselves, the rest OTHER unless said."""
    base = {LETTER: LETTER, NUMBER: NUMBER, SPACE: SPACE}
    base |= {{"mark": MARK, "punct": PUNCT, "symbol": SYMBOL}[k]: v for k, v in kinds.items()}
    return bytes(base.get(c, OTHER) for c in (OTHER, LETTER, NUMBER, MARK, PUNCT, SYMBOL, SPACE))


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """The passes, and what the name says beyond them (no key in a file does)."""

    passes: tuple[Pass | Expression, ...]
    groups: bytes = _groups()
    ignore_merges: bool = False  # a word that is a token is taken whole
    add_bos: bool = False  # unless the file has the key
    nfc: bool = False  # the published tokenizer normalizes to NFC first

    def words(self, text: str) -> list[str]:
        """The words of a text, in order; joined they are the text."""
        if not text:
            return []
        runs = Runs(text, self.groups)
        ends = [len(text)]
        for each in self.passes:
            cut = each.on(runs) if isinstance(each, Expression) else each
            starts, ends, before = 0, [], ends
            for end in before:
                cut(runs, starts, end, ends)
                starts = end
        words, a = [], 0
        for b in ends:
            words.append(text[a:b])
            a = b
        return words


def _gpt2(runs: Runs, a: int, b: int, ends: list[int]) -> None:
    r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
    text, kind, end = runs.text, runs.kind, runs.end
    i = a
    while i < b:
        c = text[i]
        if kind[i] == SPACE:
            stop = min(end[i], b)
            if stop < b:
                if stop - i > 1:
                    stop -= 1  # the last one belongs to the word behind
                elif c == " ":
                    stop = min(end[stop], b)
        elif c == "'" and (length := _contraction(text, i, b)):
            stop = i + length
        else:
            stop = min(end[i], b)
        ends.append(stop)
        i = stop


def _llama3(digits: int, any_case: bool = True) -> Pass:
    r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,digits}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""

    def cut(runs: Runs, a: int, b: int, ends: list[int]) -> None:
        text, kind, end = runs.text, runs.kind, runs.end
        i = a
        while i < b:
            here = kind[i]
            if here == LETTER:
                stop = min(end[i], b)
            elif here == NUMBER:
                stop = min(i + digits, end[i], b)
            else:
                c = text[i]
                behind = kind[i + 1] if i + 1 < b else SPACE
                if c == "'" and (length := _contraction(text, i, b, any_case)):
                    stop = i + length
                elif behind == LETTER and c not in "\r\n":
                    stop = min(end[i + 1], b)
                elif here == SPACE and not (c == " " and behind == OTHER):
                    stop = _space(text, i, min(end[i], b), b)
                else:
                    stop = min(end[i if here == OTHER else i + 1], b)
                    while stop < b and text[stop] in "\r\n":
                        stop += 1
            ends.append(stop)
            i = stop

    return cut


def _space(text: str, i: int, stop: int, b: int) -> int:
    r"""The end of \s*[\r\n]+|\s+(?!\S)|\s+ where text[i:stop] is a run of white space."""
    newline = max(text.rfind("\n", i, stop), text.rfind("\r", i, stop))
    if newline >= 0:
        return newline + 1
    return stop if stop == b or stop - i == 1 else stop - 1


def _contraction(text: str, i: int, b: int, any_case: bool = False) -> int:
    """Length of 's 't 're 've 'm 'll 'd at i, or 0."""
    tail = text[i + 1 : min(i + 3, b)]
    if any_case:
        tail = tail.lower()
    if tail[:1] in ("s", "t", "m", "d"):
        return 2
    return 3 if tail in ("re", "ve", "ll") else 0


def _single_numbers(runs: Runs, a: int, b: int, ends: list[int]) -> None:
    r"""\p{N}"""
    kind, end = runs.kind, runs.end
    i = a
    while i < b:
        stop = min(end[i], b)
        if kind[i] == NUMBER:
            ends.extend(range(i + 1, stop + 1))
        else:
            while stop < b and kind[stop] != NUMBER:
                stop = min(end[stop], b)
            ends.append(stop)
        i = stop


def _number_runs(runs: Runs, a: int, b: int, ends: list[int]) -> None:
    r"""\p{N}+"""
    kind, end = runs.kind, runs.end
    i = a
    while i < b:
        stop = min(end[i], b)
        if kind[i] != NUMBER:
            while stop < b and kind[stop] != NUMBER:
                stop = min(end[stop], b)
        ends.append(stop)
        i = stop


def _ascii_triples(runs: Runs, a: int, b: int, ends: list[int]) -> None:
    """[0-9][0-9][0-9], after a pass that leaves numbers in words that end with one."""
    text = runs.text
    start = i = a
    if runs.kind[b - 1] != NUMBER:
        i = b
    while i < b:
        three = text[i : min(i + 3, b)]
        if len(three) == 3 and three.isascii() and three.isdigit():
            if start < i:
                ends.append(i)
            start = i + 3
            ends.append(start)
            i = start
        else:
            i += 1
    if start < b:
        ends.append(b)


def _punctuation(extra: str) -> Pass:
    r"""[\p{P}extra]+"""
    wanted = np.array([ord(c) for c in extra], np.uint32)

    def cut(runs: Runs, a: int, b: int, ends: list[int]) -> None:
        inside = (runs.classes[a:b] == PUNCT) | np.isin(runs.codes[a:b], wanted)
        ends.extend((np.flatnonzero(inside[1:] != inside[:-1]) + a + 1).tolist())
        ends.append(b)

    return cut


_LLAMA3 = PreTokenizer((_llama3(3),))
_LLAMA3_BOS = PreTokenizer((_llama3(3),), ignore_merges=True, add_bos=True)
_LLAMA3_WHOLE = PreTokenizer((_llama3(3),), ignore_merges=True)
_QWEN = PreTokenizer((_llama3(1),))
_GPT2 = PreTokenizer((_gpt2,))
_STARCODER = PreTokenizer((_single_numbers, _gpt2))

# The published tokenizers of qwen2, qwen35 and mpt normalize to NFC; no key in a file says so.
PRE_TOKENIZERS: dict[str, PreTokenizer] = {
    "default": PreTokenizer((_punctuation("$+<=>^~|"), _gpt2, _number_runs, _ascii_triples)),
    "falcon": PreTokenizer((_punctuation("$+<=>^~|`"), _gpt2, _ascii_triples)),
    "mpt": PreTokenizer((_gpt2,), nfc=True),
    "qwen2": PreTokenizer((_llama3(1),), nfc=True),
    "qwen35": PreTokenizer((_llama3(1),), groups=_groups(mark=LETTER), nfc=True),
    **dict.fromkeys(("chatglm-bpe", "dbrx", "smaug-bpe"), _LLAMA3),
    **dict.fromkeys(("glm4", "glm5"), _LLAMA3_WHOLE),
    **dict.fromkeys(
        (
            "falcon-h1",
            "falcon3",
            "jina-v5-nano",
            "lfm2",
            "llama-bpe",
            "llama-v3",
            "llama3",
            "midm-2.0",
            "pixtral",
        ),
        _LLAMA3_BOS,
    ),
    **dict.fromkeys(
        (
            "deepseek-r1-qwen",
            "f2llmv2",
            "grok-2",
            "hunyuan",
            "kormo",
            "megrez",
            "solar-open",
            "stablelm2",
        ),
        _QWEN,
    ),
    **dict.fromkeys(
        (
            "a.x-4.0",
            "exaone4",
            "gigachat",
            "gpt-2",
            "granite-docling",
            "jais",
            "jina-de",
            "jina-es",
            "jina-v1-en",
            "jina-v2-code",
            "jina-v2-de",
            "jina-v2-es",
            "mellum",
            "modern-bert",
            "olmo",
            "phi-2",
            "roberta-bpe",
            "trillion",
        ),
        _GPT2,
    ),
    **dict.fromkeys(
        (
            "codeshell",
            "command-r",
            "exaone",
            "mellum2",
            "minerva-7b",
            "refact",
            "smollm",
            "starcoder",
        ),
        _STARCODER,
    ),
}


@cache
def _expressions(name: str, as_published: bool) -> PreTokenizer:
    """A pre-tokenizer of expressions."""
    kind = published.NAMES[name]
    other = None if as_published else published.LLAMA_CPP.get(kind)
    return PreTokenizer(
        tuple(counted.FUNCTIONS.get(s) or Expression(s) for s in other or published.SETS[kind]),
        ignore_merges=name in published.IGNORE_MERGES,
        add_bos=name in published.ADD_BOS,
    )


def names() -> list[str]:
    """All names that are known, in order."""
    return sorted((*PRE_TOKENIZERS, *published.NAMES))


def get(name: str | None, as_published: bool = True) -> PreTokenizer:
    """The pre-tokenizer that a file names; a file that names none means `default`.

    `as_published`: as the model's own tokenizer cuts; False: as llama.cpp does.

    Raises:
        ModelError: a name that is not in the table.
    """
    if name in published.NAMES:
        return _expressions(name, as_published)
    found = PRE_TOKENIZERS.get(name or "default")
    if found is None:
        raise ModelError(
            f"unknown pre-tokenizer {show(name)}",
            where="tokenizer.ggml.pre",
            expected="one of " + ", ".join(names()),
            hint="a known one that cuts words in the same way can be named in its place: pre=NAME",
        )
    return found
