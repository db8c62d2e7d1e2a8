"""What `batch` reads: formats told apart, one bad record touches no other, nothing huge is held."""

from __future__ import annotations

import csv
import io
import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gguf_runtime.cli.batch import source as sources
from gguf_runtime.cli.batch.fill import Fill
from gguf_runtime.cli.batch.records import columns, read
from gguf_runtime.cli.batch.source import Source, open_source
from gguf_runtime.cli.values import UsageError
from gguf_runtime.errors import RequestError


def of(data: bytes, name: str = "in", format=None, wanted=()) -> Source:
    return Source(name, io.BytesIO(data), format, wanted, again=True)


def found(source: Source) -> list[tuple[int, object]]:
    """(line, fields or message)."""
    return [(r.line, r.error.what if r.error else r.fields) for r in read(source)]


@pytest.mark.parametrize(
    ("name", "data", "format"),
    [
        ("a.jsonl", b'{"prompt": "x"}', "jsonl"),
        ("a.ndjson", b'{"prompt": "x"}', "jsonl"),
        ("a.jsonl", b'{"custom_id": "1", "url": "/v1/x", "body": {}}', "openai"),
        ("A.CSV", b"a,b\n1,2", "csv"),
        ("a.tsv", b"a\tb\n1\t2", "tsv"),
        ("a.txt", b"{not json", "text"),
        ("a", b'\n\xef\xbb\xbf {"prompt": "x"}'[4:], "jsonl"),
        ("a", b"plain words", "text"),
        ("-", b"plain words", "text"),
    ],
)
def test_the_format_follows_from_the_suffix_or_the_first_line(name, data, format):
    assert of(data, name).format == format


def test_a_template_with_columns_makes_a_table_of_what_has_no_suffix():
    assert of(b"text,label\nx,y\n", "-", None, ["text"]).format == "csv"
    assert of(b"text,label\nx,y\n", "-", None, ["line"]).format == "text"


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"\x1f\x8b\x08", "gzip"),
        (b"PK\x03\x04", "spreadsheet"),
        (b"PAR1", "Parquet"),
        (b"GGUF\x03", "GGUF model"),
        (b"\xff\xfea\x00", "UTF-16"),
        (b'[{"prompt": "x"}]', "one JSON list"),
    ],
)
def test_files_without_lines_are_named_with_what_makes_lines_of_them(data, word):
    with pytest.raises(UsageError) as e:
        of(data)
    assert word in e.value.lines[0]
    assert len(e.value.lines) > 1


def test_lines_of_json_are_numbered_as_an_editor_does_and_bad_ones_are_told_apart():
    data = b'{"prompt": "a"}\r\n\n{"prompt": \n[1]\n{"prompt": "\xff"}\n{"prompt": "b"}\n\n \n'
    assert found(of(data, "a.jsonl")) == [
        (1, {"prompt": "a"}),
        (2, "the line is empty"),
        (3, "not JSON: expecting value at character 12"),
        (4, "not a JSON object"),
        (5, "byte 13 is not UTF-8"),
        (6, {"prompt": "b"}),
    ]


def test_json_that_python_would_choke_on_is_an_error_of_its_line():
    deep = b'{"prompt": ' + b"[" * 100_000 + b"\n"
    long = b'{"prompt": "x", "seed": ' + b"1" * 5000 + b"}\n"
    half = rb'{"prompt": "\ud83d"}' + b"\n"
    rows = found(of(deep + long + half + b'{"prompt": "b"}', "a.jsonl"))
    assert [n for n, _ in rows] == [1, 2, 3, 4]
    assert all(isinstance(what, str) for _, what in rows[:3])
    assert rows[3][1] == {"prompt": "b"}


def test_a_huge_line_is_refused_without_being_held(monkeypatch):
    class Endless(io.RawIOBase):
        """64 MiB without a line end, then a line."""

        left = 64 << 20

        def readable(self):
            return True

        def readinto(self, b):
            if self.left > 0:
                n = min(len(b), self.left)
                b[:n] = b"x" * n
                self.left -= n
                return n
            if self.left == 0:
                self.left = -1
                b[:6] = b"\nnext\n"
                return 6
            return 0

    source = Source("a.txt", io.BufferedReader(Endless()), "text", (), again=False)
    tracemalloc.start()
    try:
        rows = found(source)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert rows == [(1, "the line is too long"), (2, {"line": "next"})]
    assert peak < 4 * sources.LONGEST


def test_rows_are_numbered_by_the_line_that_they_begin_on():
    data = b'text,label\n"two\nlines",a\nx,b\n\ny\n"z""q",c\n\n'
    assert columns(of(data, "a.csv")) == ["text", "label"]
    assert found(of(data, "a.csv")) == [
        (2, {"text": "two\nlines", "label": "a"}),
        (4, {"text": "x", "label": "b"}),
        (5, "the line is empty"),
        (6, "the row is not whole"),
        (7, {"text": 'z"q', "label": "c"}),
    ]


def test_a_quote_that_is_never_closed_is_named_with_its_line():
    rows = found(of(b'text\nfine\n"open\nmore\nmore\n', "a.csv"))
    assert rows == [(2, {"text": "fine"}), (3, "a quote that opens here is never closed")]


def test_a_row_that_is_not_utf8_is_an_error_and_the_next_is_read():
    rows = found(of(b"text\ncaf\xe9\ncaf\xc3\xa9\n", "a.csv"))
    assert rows == [(2, 'column "text" is not UTF-8'), (3, {"text": "café"})]


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_is_the_one_that_the_header_has(delimiter):
    data = delimiter.join(["text", "label"]) + "\n" + delimiter.join(["a", "b"])
    assert found(of(data.encode(), "a.csv")) == [(2, {"text": "a", "label": "b"})]


def test_headers_that_cannot_be_used_are_refused():
    for data, word in ((b"", "no header"), (b"a,a\n1,2\n", "twice")):
        with pytest.raises(UsageError, match=word):
            columns(of(data, "a.csv"))


cells = st.text(st.characters(codec="utf-8", exclude_characters="\r\0"), max_size=12)


@given(st.lists(st.tuples(cells, cells), max_size=8))
def test_any_table_that_python_writes_is_read_back(rows):
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["a", "b"])
    writer.writerows(rows)

    fields = [r.fields for r in read(of(out.getvalue().encode(), "x.csv")) if r.error is None]

    wanted = [{"a": a, "b": b} for a, b in rows if (a + b).strip()]
    assert fields == wanted


@given(st.binary(max_size=200), st.sampled_from(["jsonl", "csv", "text", "tsv"]))
def test_any_bytes_give_records_or_a_word_about_the_header(data, format):
    source = of(data, "x", format) if not data.startswith(FOREIGN) else None
    if source is None:
        return
    try:
        numbers = [r.line for r in read(source)]
    except UsageError:
        return
    assert numbers == sorted(set(numbers))


FOREIGN = tuple(magic for magic, _, _ in sources._FOREIGN)


def test_a_template_fills_columns_and_leaves_other_braces_alone():
    fill = Fill('{text} is {"a": {"b": 1}} and {{text}}: {n}')
    assert fill({"text": "x {n}", "n": 5}) == 'x {n} is {"a": {"b": 1}} and {text}: 5'
    fill.check(["text", "n"], "in")


def test_a_column_that_is_not_there_is_named_with_the_nearest():
    with pytest.raises(UsageError) as e:
        Fill("{txt}").check(["text", "label"], "rows.csv")
    assert e.value.lines == [
        '--prompt: rows.csv has no column "txt"',
        "it has label, text; did you mean {text}?",
        "for braces that are text write {{txt}}",
    ]
    with pytest.raises(UsageError, match="all prompts would be the same"):
        Fill("Classify").check(["text"], "in")
    with pytest.raises(RequestError, match='no field "text"'):
        Fill("{text}")({"prompt": "x"})


def test_standard_input_is_read_as_it_comes_where_nothing_is_resumed(monkeypatch):
    class Stdin:
        buffer = io.BufferedReader(io.BytesIO(b'\n{"prompt": "a"}\n{"prompt": "b"}\n'))  # type: ignore[arg-type]

    monkeypatch.setattr("sys.stdin", Stdin)
    source = open_source("-", None, keeps=False)
    assert not source.again
    assert source.format == "jsonl"
    assert [f for _, f in found(source)] == ["the line is empty", {"prompt": "a"}, {"prompt": "b"}]


def test_a_copy_of_standard_input_can_be_read_again(monkeypatch, tmp_path):
    class Stdin:
        buffer = io.BytesIO(json.dumps({"prompt": "a"}).encode())

    monkeypatch.setattr("sys.stdin", Stdin)
    with open_source("-", None, keeps=True, beside=tmp_path) as source:
        assert found(source) == found(source) == [(1, {"prompt": "a"})]
        assert source.digest[1] == 15
        assert list(tmp_path.iterdir()) == []
