"""The input of `batch`: which file, which format, its digest, its lines.

Nothing is held but one line. A file is read twice: once to know its digest and how many records it
has, once to answer them. Standard input is kept in a file without a name for that, unless the
answers go to standard output, where nothing is resumed: then it is read as it comes.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import BinaryIO, Literal

from gguf_runtime.cli.terminal import OutputError
from gguf_runtime.cli.values import UsageError
from gguf_runtime.errors import show

Format = Literal["jsonl", "openai", "csv", "tsv", "text"]

STDIN = "-"
TEXT_COLUMN = "line"  # what a line of plain text is called in a template
LONGEST = 16 << 20  # bytes of a line; a longer one is refused and skipped without being held
HEAD = 1 << 16  # bytes that are looked at to know the format
BOM = b"\xef\xbb\xbf"

_SUFFIXES: dict[str, Format] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".txt": "text",
}
# How files begin that hold no lines, what they are, and what makes lines of them.
_FOREIGN = (
    (b"\x1f\x8b", "compressed by gzip", "gunzip -c {name} | gg batch MODEL - -o OUT.jsonl"),
    (b"\x28\xb5\x2f\xfd", "compressed by zstd", "zstdcat {name} | gg batch MODEL - -o OUT.jsonl"),
    (b"PK\x03\x04", "a spreadsheet or another zip file", "save it as CSV (UTF-8) first"),
    (b"PAR1", "a Parquet file", "write it as CSV or as JSON lines first"),
    (b"GGUF", "a GGUF model", "the order is: gg batch MODEL IN -o OUT.jsonl"),
    (b"\xff\xfe", "text in UTF-16", "iconv -f utf-16 -t utf-8 {name} > utf8.csv"),
    (b"\xfe\xff", "text in UTF-16", "iconv -f utf-16 -t utf-8 {name} > utf8.csv"),
)


@dataclass(frozen=True, slots=True)
class Line:
    """A physical line without its end; `data` is None where it was longer than LONGEST."""

    number: int
    data: bytes | None


class Source:
    """An open input. `format` may be told, else it follows from the suffix or the first line."""

    def __init__(
        self,
        name: str,
        stream: BinaryIO,
        format: Format | None,
        columns: Collection[str],
        *,
        again: bool,
    ) -> None:
        self.name = "stdin" if name == STDIN else name
        self.path = None if name == STDIN else Path(name)
        self.again = again  # whether it can be read a second time
        self._stream = stream
        self._read: list[bytes] = []  # of a stream that cannot go back: what was looked at
        head = self._head()
        self._refuse_foreign(head)
        self.format: Format = format or _format(name, head, self.name, columns)

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def delimiter(self) -> str:
        """Between the fields of a table: the one that its first line has most of."""
        if self.format == "tsv":
            return "\t"
        first = self._head().split(b"\n", 1)[0]
        counts = {d: first.count(d.encode()) for d in ",;\t|"}
        return max(counts, key=lambda d: counts[d])

    def lines(self) -> Iterator[Line]:
        """All physical lines from the first on."""
        if self.again:
            self._stream.seek(0)
        pieces = chain(self._read, iter(lambda: self._stream.readline(LONGEST + 1), b""))
        number, whole = 0, True
        for piece in pieces:
            was_whole, whole = whole, piece.endswith(b"\n")
            if not was_whole:
                continue  # the rest of a line that is too long
            number += 1
            too_long = len(piece) > LONGEST and not whole
            data = piece.removesuffix(b"\n").removesuffix(b"\r")
            if number == 1:
                data = data.removeprefix(BOM)
            yield Line(number, None if too_long else data)

    @functools.cached_property
    def digest(self) -> tuple[str, int]:
        """sha256 and size in bytes of all of it."""
        self._stream.seek(0)
        found = hashlib.sha256()
        size = 0
        while block := self._stream.read(1 << 20):
            found.update(block)
            size += len(block)
        return found.hexdigest(), size

    def close(self) -> None:
        """Let go of the file."""
        if sys.stdin is None or self._stream is not sys.stdin.buffer:
            self._stream.close()

    def _head(self) -> bytes:
        """The beginning, at least one line that is not blank where there is one."""
        if self.again:
            self._stream.seek(0)
            return self._stream.read(HEAD).removeprefix(BOM)
        if not self._read:
            while piece := self._stream.readline(LONGEST + 1):
                self._read.append(piece)
                if piece.removeprefix(BOM).strip():
                    break
        return b"".join(self._read).removeprefix(BOM)[:HEAD]

    def _refuse_foreign(self, head: bytes) -> None:
        for magic, what, hint in _FOREIGN:
            if head.startswith(magic):
                raise UsageError(
                    f"{self.name} is {what}, and batch reads lines of UTF-8 text",
                    hint.format(name=self.name),
                )


def open_source(
    name: str,
    format: Format | None,
    columns: Collection[str] = (),
    *,
    keeps: bool,
    beside: Path | None = None,
) -> Source:
    """Open IN.

    Args:
        name: a path, or - for standard input.
        format: as asked for; None: found out.
        columns: those that a template names, which tells tables from text.
        keeps: standard input has to be read twice, so it is copied.
        beside: the folder for that copy.
    """
    if name != STDIN:
        try:
            stream: BinaryIO = open(name, "rb")  # noqa: SIM115 the Source closes it
        except OSError as e:
            raise _unreadable(name, e) from e
        return Source(name, stream, format, columns, again=stream.seekable())
    if sys.stdin is None:
        raise UsageError("stdin is closed, but - names it")
    if not keeps:
        return Source(name, sys.stdin.buffer, format, columns, again=False)
    with contextlib.ExitStack() as undo:
        copy = undo.enter_context(tempfile.TemporaryFile(dir=beside))
        try:
            shutil.copyfileobj(sys.stdin.buffer, copy, 1 << 20)
            copy.flush()
        except OSError as e:
            raise OutputError(e, "a copy of stdin") from e
        source = Source(name, copy, format, columns, again=True)
        undo.pop_all()
    return source


def _unreadable(name: str, e: OSError) -> UsageError:
    why = (e.strerror or "cannot be read").lower()
    if isinstance(e, FileNotFoundError):
        return UsageError(f"{show(name)}: {why}", "IN is a file of prompts, or - for stdin")
    return UsageError(f"{show(name)}: {why}")


def _format(name: str, head: bytes, shown: str, columns: Collection[str]) -> Format:
    begins = head.lstrip()
    suffix = os.path.splitext(name)[1].lower()
    if begins.startswith(b"[") and suffix in ("", ".json", ".jsonl", ".ndjson"):
        raise UsageError(
            f"{shown} is one JSON list, and batch reads one object a line",
            f"jq -c '.[]' {'IN' if shown == 'stdin' else shown} > lines.jsonl",
            "if it is text after all: --format text",
        )
    found = _SUFFIXES.get(suffix)
    if found is None:
        table = any(c != TEXT_COLUMN for c in columns)
        found = "jsonl" if begins.startswith(b"{") else "csv" if table else "text"
    if found == "jsonl" and _is_openai(begins):
        return "openai"
    return found


def _is_openai(head: bytes) -> bool:
    """Whether the first line is a request of OpenAI's batch files."""
    first = head.split(b"\n", 1)[0]
    return b'"body"' in first and (b'"custom_id"' in first or b'"url"' in first)
