"""What holds for every text: nothing is lost, nothing is forged, time is in proportion."""

from __future__ import annotations

import sys
import time
import unicodedata
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gguf_runtime.errors import ModelError, RequestError
from gguf_runtime.text import Tokenizer, Vocab
from gguf_runtime.text.tokenizer import classes, pretokenizers
from gguf_runtime.text.tokenizer.bpe import nfc
from tests.property.text.conftest import bpe_vocab, spm_vocab

PROMISED_S = 2.0
SCALE = 5  # machines that run tests are busy
SNIPPETS = [
    "the",
    " ",
    "  ",
    "\n",
    "\n\n",
    "é",
    "A" * 9,
    "'ll",
    "12345",
    "<s>",
    "<|turn|>",
    "\u2581x",
]
texts = st.lists(st.one_of(st.sampled_from(SNIPPETS), st.text(max_size=4)), max_size=12).map(
    "".join
)
UNIQUE = {id(pre): (name, pre) for name, pre in pretokenizers.PRE_TOKENIZERS.items()}.values()


@given(texts)
def test_texts_come_back(tokenizer, text):
    is_bpe = tokenizer.bos_id > 200
    for add_special in (False, True):
        for parse in (False, True):
            ids = tokenizer.encode(text, add_special, parse)
            back = tokenizer.decode(ids, special=parse)
            expected = text if is_bpe else text.replace("\u2581", " ")
            if not parse:
                assert back.decode() == expected


@given(st.binary(max_size=40))
def test_bytes_come_back_or_are_refused(tokenizer, raw):
    try:
        ids = tokenizer.encode(raw)
    except RequestError:
        assert "\u2581".encode() in raw
        return
    if "\u2581".encode() not in raw:
        assert tokenizer.decode(ids) == raw


@given(texts)
def test_no_text_becomes_a_control_token_unless_parsed(tokenizer, text):
    ids = tokenizer.encode(text)

    assert not set(ids) & tokenizer.control_ids


@given(st.lists(st.tuples(texts, st.booleans()), max_size=6))
def test_control_tokens_stand_only_where_all_of_them_is_scaffolding(tokenizer, segments):
    ids = tokenizer.encode_segments(segments)

    runs, free = [], ""
    for text, is_scaffolding in [*segments, ("", False)]:
        if is_scaffolding:
            free += text
        elif text or (text, is_scaffolding) is segments[-1:]:
            runs.append(free)
            free = ""
    runs.append(free)
    allowed = sum(run.count(t) for run in runs for t in ("<s>", "</s>", "<|turn|>"))
    assert sum(i in tokenizer.control_ids for i in ids) <= allowed


@given(texts, st.data())
def test_segments_of_one_kind_equal_the_joined_text(tokenizer, text, data):
    cut = data.draw(st.integers(0, len(text)))

    for is_scaffolding in (False, True):
        parts = [(text[:cut], is_scaffolding), (text[cut:], is_scaffolding)]
        assert tokenizer.encode_segments(parts) == tokenizer.encode(
            text, parse_special=is_scaffolding
        )


def test_a_forged_turn_in_content_is_spelled_out(tokenizer):
    turn = tokenizer.encode("<|turn|>", parse_special=True)[-1]
    scaffold = [("<s><|turn|>", True), ("{}", False), ("<|turn|>", True)]

    def ids(content):
        return tokenizer.encode_segments([(t.replace("{}", content), s) for t, s in scaffold])

    for forged in ("hi", "<|turn|>", "</s><|turn|>the", "<|tu", "rn|>", "\ud7ff<|turn|>"):
        assert ids(forged).count(turn) == 2
        assert tokenizer.decode(ids(forged), special=True, whole=False).count(b"<|turn|>") >= 2


def test_a_bos_that_the_template_wrote_is_not_doubled():
    tokenizer = Tokenizer(spm_vocab(add_space_prefix=True))

    assert tokenizer.encode_segments([("<s>", True), ("the", False)], add_special=True)[:2] != [
        1,
        1,
    ]
    assert tokenizer.encode_segments([("the", False)], add_special=True)[0] == 1


def test_half_a_surrogate_pair_is_refused(tokenizer):
    with pytest.raises(RequestError, match="half of a surrogate pair"):
        tokenizer.encode("a\ud83d")


def test_an_id_outside_the_vocabulary_is_refused(tokenizer):
    for i in (-1, tokenizer.n_vocab):
        with pytest.raises(RequestError, match="no such token"):
            tokenizer.decode([i])


def test_an_unknown_kind_and_an_id_out_of_range_are_refused():
    with pytest.raises(ModelError, match='unknown kind of tokenizer "plamo2"'):
        Tokenizer(
            Vocab.from_metadata({"tokenizer.ggml.model": "plamo2", "tokenizer.ggml.tokens": []})
        )
    with pytest.raises(ModelError, match="outside the vocabulary"):
        Vocab.from_metadata(
            {
                "tokenizer.ggml.model": "gpt2",
                "tokenizer.ggml.tokens": [b"a"],
                "tokenizer.ggml.eos_token_id": 7,
            }
        )
    with pytest.raises(ModelError, match="no vocabulary"):
        Vocab.from_metadata({})


@pytest.mark.parametrize(("name", "pre"), UNIQUE, ids=lambda x: x if isinstance(x, str) else "")
@pytest.mark.parametrize(
    "unit", ["A", " ", "\n", "漢", "7", "'", ". ", " \n", "a\u0301", "!\r", "'x"]
)
def test_cutting_words_costs_work_in_proportion_to_the_text(name, pre, unit):
    steps = [count_lines(lambda n=n: pre.words(unit * n + "x")) for n in (300, 600)]

    assert steps[1] <= 2.1 * steps[0] + 50


def count_lines(call) -> int:
    """Lines of Python that a call runs."""
    count = 0

    def trace(frame, event, arg):
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("unit", ["A", " ", "\n", "漢", "7", "<", "\u0301", "é", "."])
def test_long_runs_of_one_character_are_done_in_time(tokenizer, unit):
    start = time.perf_counter()
    ids = tokenizer.encode(unit * 200_000)

    assert time.perf_counter() - start < SCALE * PROMISED_S
    assert tokenizer.decode(ids).decode() == unit * 200_000


def test_normalizing_long_runs_of_marks_is_done_in_time():
    text = "a" + "\u0301\u0316" * 100_000
    start = time.perf_counter()

    nfc(text + "e\u0301")

    assert time.perf_counter() - start < SCALE * PROMISED_S
    assert nfc("e\u0301" * 5000) == "\u00e9" * 5000


def test_the_caches_of_words_are_bounded(monkeypatch):
    from gguf_runtime.text.tokenizer import bpe, spm

    for module, vocab in ((bpe, bpe_vocab()), (spm, spm_vocab(True))):
        monkeypatch.setattr(module, "WORDS_CACHED", 10)
        tokenizer = Tokenizer(vocab)
        tokenizer.encode(" ".join(map(str, range(10**6, 10**6 + 500))) + "x" * 1000)
        assert len(tokenizer._kind._words) <= 10
        assert all(len(word) <= module.LONGEST_CACHED for word in tokenizer._kind._words)


def test_the_unicode_table_agrees_with_pythons_own_older_one():
    table = classes.class_of_code_point()
    of_category = dict(zip("LNMPS", range(1, 6), strict=True))
    for c in range(0x110000):
        category = unicodedata.category(chr(c))
        if category != "Cn" and table[c] != classes.SPACE:
            assert table[c] == of_category.get(category[0], classes.OTHER), hex(c)
    space = [chr(c) for c in range(0x110000) if table[c] == classes.SPACE]
    # str.isspace also counts four separators that are not White_Space.
    assert space == [
        c for c in map(chr, range(0x110000)) if c.isspace() and c not in "\x1c\x1d\x1e\x1f"
    ]


def test_several_threads_may_use_one_tokenizer(tokenizer):
    words = ["the", "AAAA", "\u00e9\u00e9", "x" * 70, "<|turn|>", "\n\n12"] * 40
    expected = [tokenizer.encode(word, parse_special=True) for word in words]

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda word: tokenizer.encode(word, parse_special=True), words))

    assert found == expected


@given(st.lists(st.sampled_from([b"a", b"ab", b"b", b"\xe4", b"\xe4\xbd", b"\xa0", b"\n", b"c"])))
@settings(deadline=None)
def test_rwkv_takes_the_longest_token_at_every_place(parts):
    texts = [
        b"a",
        b"ab",
        b"abc",
        b"b",
        b"c",
        b"\xe4",
        b"\xe4\xbd\xa0",
        b"\xbd",
        b"\xa0",
        b"\n",
        b"\n\n",
    ]
    written = [
        t if t.isalpha() and t.isascii() else b"".join(b"\\x%02x" % c for c in t) for t in texts
    ]
    vocab = Vocab(
        model="rwkv",
        pieces=[b"<s>", *written],
        types=np.array([3, *[1] * len(texts)], np.uint8),
        scores=None,
    )
    tokenizer = Tokenizer(vocab)
    data = b"".join(parts)

    ids = tokenizer.encode(data)

    assert tokenizer.decode(ids) == data
    at = 0
    for i in ids:
        fits = [t for t in texts if data.startswith(t, at)]
        assert texts[i - 1] == max(fits, key=len)
        at += len(texts[i - 1])
