"""What a conversation is made of, without a terminal: keys, Markdown, settings, the store."""

from __future__ import annotations

import json
import os
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gguf_runtime.cli.talk import settings as talk_settings
from gguf_runtime.cli.talk.inline import spans
from gguf_runtime.cli.talk.keyboard import as_text
from gguf_runtime.cli.talk.line import is_open, unfenced
from gguf_runtime.cli.talk.markdown import Markdown
from gguf_runtime.cli.talk.store import Store
from gguf_runtime.errors import FileError, RequestError

MARKS = st.sampled_from(
    ["*", "**", "_", "`", "```", "[a](b)", "<http://x>", "~~", "\\", "# ", "- ", "> ", "|", "1. "]
)
PIECES = st.one_of(
    MARKS, st.sampled_from(["word", " ", "\n", "  ", "日本", "👨‍👩‍👧", "é", "\t", "---"])
)


def shown(text: str, cuts: list[int], **how) -> str:
    out: list[str] = []
    view = Markdown(out.append, **how)
    for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True):
        view.feed(text[a:b])
    view.end()
    return re.sub(r"\x1b\[[0-9;]*m|…\r \r", "", "".join(out))


@given(st.lists(PIECES, max_size=40).map("".join), st.data(), st.integers(3, 60), st.booleans())
@settings(deadline=None, max_examples=150)
def test_the_screen_does_not_depend_on_how_an_answer_was_cut_into_pieces(text, data, width, styled):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    how = {"styled": styled, "width": lambda: width}

    whole, cut = shown(text, [], **how), shown(text, cuts, **how)

    assert re.sub(r"\s", "", cut) == re.sub(r"\s", "", whole)
    if not styled:
        assert re.sub(r"\s", "", whole) == re.sub(r"\s", "", text)


@given(st.lists(st.sampled_from(["word", " ", "x" * 12, "\n", "-"]), max_size=60).map("".join))
@settings(deadline=None)
def test_rows_end_between_words_unless_a_word_is_longer_than_a_row(text):
    rows = shown(text, [], styled=False, width=lambda: 20).split("\n")

    words = text.split()
    assert [w for row in rows for w in row.split()] == words
    assert all(len(row) <= 20 or max(map(len, row.split())) > 20 for row in rows)


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("**bold** and *it* and ***both***", "bold and it and both"),
        ("`a *b*` ``c ` d``", "a *b* c ` d"),
        ("2 * 3 * 4 and snake_case_name", "2 * 3 * 4 and snake_case_name"),
        ("[n](http://x) <http://y> ![i](z)", "n (http://x) http://y i (z)"),
        ("\\*not\\* ~~gone~~ **open", "*not* gone **open"),
        ("*" * 2000, "*" * 2000),
        ("*_" * 1500 + "a" + "_*" * 1500, None),
        ("[" * 3000, "[" * 3000),
    ],
)
def test_marks_within_a_line_become_styles_or_stay(text, plain):
    found, n = spans(text)

    assert n == len(text)
    if plain is not None:
        assert "".join(t for t, _ in found) == plain


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ("one\rtwo\r", "one\ntwo"),
        ("a\x1b[A\x1b[1;5Cb\x1bOPc", "abc"),
        ("\x1b[200~pasted\rtext\x1b[201~", "pasted\ntext"),
        ("wrogn\x7f\x7fng", "wrong"),
        ("日本\x7f語\x7f\x7f\x7f\x7f", ""),
        ("\x1b[24;1R\x04\x15x", "x"),
    ],
)
def test_keys_that_came_meanwhile_become_the_text_they_made(keys, text):
    assert as_text(keys) == text


@pytest.mark.parametrize(
    ("typed", "open_", "text"),
    [
        ("plain", False, "plain"),
        ('"""one', True, "one"),
        ('"""one"""', False, "one"),
        ('"""\none\n\ntwo\n"""', False, "one\n\ntwo"),
        ('"""', True, ""),
        ('""""""', False, ""),
        ('say """ quotes', False, 'say """ quotes'),
    ],
)
def test_three_quotes_hold_a_block(typed, open_, text):
    assert is_open(typed) is open_
    assert unfenced(typed) == text


def test_typed_values_are_numbers_words_and_lists():
    value = talk_settings.value

    assert value("top_k", "40") == 40
    assert value("temperature", "0.5") == 0.5
    assert value("max_tokens", "1_000") == 1000
    assert value("speculate", "off") is False
    assert value("stop", "END") == ["END"]
    assert value("stop", '["a", "b"]') == ["a", "b"]
    assert value("stop_ids", "3") == [3]
    assert value("temperature", "warm") == "warm"


def test_a_store_finds_conversations_by_age_and_by_a_part_of_their_name(tmp_path):
    store = Store(tmp_path / "chats")
    with pytest.raises(RequestError, match="no saved conversation"):
        store.load()
    made = []
    for k in range(3):
        c = store.new("m")
        c.messages = [{"role": "user", "content": f"number {k}"}]
        assert store.save(c)
        os.utime(store.path(c), (k, k))
        made.append(c)

    assert [c.title for c in store.listed()] == ["number 2", "number 1", "number 0"]
    assert store.load().id == made[2].id
    assert store.load(made[0].id).messages == made[0].messages
    assert store.load(made[1].id[-4:] if len({m.id[-4:] for m in made}) == 3 else made[1].id)
    with pytest.raises(RequestError, match="saved conversations fit"):
        store.load(made[0].id[:2])


def test_files_that_are_no_conversations_are_left_out_and_named_when_asked_for(tmp_path):
    store = Store(tmp_path)
    (tmp_path / "20260101-000000-beef.json").write_text("{")
    (tmp_path / "20260101-000001-cafe.json").write_text(json.dumps({"messages": 5}))

    assert store.listed() == []
    with pytest.raises(FileError, match="no JSON"):
        store.load("beef")
    with pytest.raises(RequestError, match="not a list of messages"):
        store.load("cafe")


def test_what_a_killed_program_left_is_taken_away_later(tmp_path):
    old, new = tmp_path / ".x.json.1.tmp", tmp_path / ".y.json.2.tmp"
    for path in (old, new):
        path.write_text("half")
    os.utime(old, (1, 1))
    store = Store(tmp_path)
    c = store.new("m")
    c.messages = [{"role": "user", "content": "hello"}]

    store.save(c)

    assert sorted(p.name for p in tmp_path.iterdir()) == [new.name, f"{c.id}.json"]


def test_lone_surrogates_do_not_cost_the_rest_of_a_conversation(tmp_path):
    store = Store(tmp_path)
    c = store.new("m")
    c.messages = [{"role": "user", "content": "a \udcff b"}]

    store.save(c)

    assert store.load().messages[0]["content"] == "a ? b"
