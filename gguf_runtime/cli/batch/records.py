"""From lines to records: one JSON object, one row of a table, one line of text.

A record that cannot be read carries an error in place of fields; the next ones are not touched by it.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gguf_runtime.cli.batch.source import LONGEST, TEXT_COLUMN, Line, Source
from gguf_runtime.cli.values import UsageError
from gguf_runtime.errors import RequestError, show


@dataclass(frozen=True, slots=True)
class Record:
    """What stands at a line: fields by name, or why there are none."""

    line: int
    fields: dict[str, Any]
    error: RequestError | None = None


def read(source: Source) -> Iterator[Record]:
    """All records; blank lines at the very end are none."""
    if source.format in ("csv", "tsv"):
        return _trimmed(_table(source))
    parse = _text if source.format == "text" else _object
    return _trimmed(_one(line, parse) for line in source.lines())


def columns(source: Source) -> list[str] | None:
    """Names in the first row of a table; None where the format has no such row."""
    if source.format == "text":
        return [TEXT_COLUMN]
    if source.format not in ("csv", "tsv"):
        return None
    return _header(_Rows(source))


def _one(line: Line, parse: Any) -> Record:
    if line.data is None:
        return Record(line.number, {}, _too_long())
    if not line.data.strip():
        return Record(line.number, {}, _empty())
    try:
        return Record(line.number, parse(line.data))
    except UnicodeDecodeError as e:
        return Record(line.number, {}, _not_utf8(f"byte {e.start + 1:,}"))
    except RequestError as e:
        return Record(line.number, {}, e)


def _text(data: bytes) -> dict[str, Any]:
    return {TEXT_COLUMN: data.decode("utf-8")}


def _object(data: bytes) -> dict[str, Any]:
    text = data.decode("utf-8")
    try:
        found = json.loads(text)
    except json.JSONDecodeError as e:
        raise RequestError(
            f"not JSON: {e.msg[:1].lower()}{e.msg[1:]} at character {e.pos + 1:,}"
        ) from None
    except (ValueError, RecursionError) as e:
        raise RequestError(f"not JSON that can be read: {e}") from None
    if not isinstance(found, dict):
        raise RequestError("not a JSON object", expected='{"prompt": "…"}', got=show(found, 40))
    if "\\u" in text:  # the one way in which half a character comes into JSON
        try:
            json.dumps(found, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise RequestError(
                "half of a surrogate pair stands alone", hint="write the character itself"
            ) from None
    return found


class _Rows:
    """Physical lines for the csv module, which asks for the next one where a field has line ends."""

    def __init__(self, source: Source) -> None:
        self._lines = source.lines()
        self.number = 0  # of the line given last
        csv.field_size_limit(LONGEST)
        self.reader = csv.reader(self, delimiter=source.delimiter, strict=True)

    def __iter__(self) -> _Rows:
        return self

    def __next__(self) -> str:
        line = next(self._lines)
        self.number = line.number
        if line.data is None:
            raise _too_long()
        return line.data.decode("utf-8", "surrogateescape") + "\n"


def _header(rows: _Rows) -> list[str]:
    try:
        names = next(rows.reader, None)
    except (csv.Error, RequestError) as e:
        raise UsageError(f"line {rows.number}: the header cannot be read: {e}") from None
    if not names:
        raise UsageError("the table has no header", "its first line names the columns")
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise UsageError(f"the header has the column {show(twice[0])} twice")
    return names


def _table(source: Source) -> Iterator[Record]:
    rows = _Rows(source)
    names = _header(rows)
    while True:
        line = rows.number + 1
        try:
            values = next(rows.reader)
            yield _row(line, names, values)
        except StopIteration:
            return
        except csv.Error as e:
            yield Record(line, {}, _broken(str(e), line, rows.number))
        except RequestError as e:
            yield Record(line, {}, e)


def _row(line: int, names: list[str], values: list[str]) -> Record:
    if not "".join(values).strip():
        return Record(line, {}, _empty())
    if len(values) != len(names):
        wanted = f"{len(names)} fields, as the header has"
        return Record(
            line, {}, RequestError("the row is not whole", expected=wanted, got=f"{len(values)}")
        )
    for name, value in zip(names, values, strict=True):
        if not value.isascii() and any("\udc80" <= c <= "\udcff" for c in value):
            return Record(line, {}, _not_utf8(f"column {show(name)}"))
    return Record(line, dict(zip(names, values, strict=True)))


def _broken(why: str, first: int, last: int) -> RequestError:
    """A row that ends nowhere, or that goes on behind a closing quote."""
    what = "a quote that opens here is never closed" if "end of data" in why else f"not CSV: {why}"
    lines = f"{last - first + 1:,} lines" if last > first else None
    return RequestError(what, got=lines, hint='a quote inside a quoted field is written ""')


def _trimmed(records: Iterator[Record]) -> Iterator[Record]:
    """Without blank records behind the last other one."""
    first = last = 0
    for record in records:
        if record.error is not None and record.error.what == _EMPTY:
            first, last = first or record.line, record.line
            continue
        for line in range(first, last + 1 if first else 0):
            yield Record(line, {}, _empty())
        first = 0
        yield record


_EMPTY = "the line is empty"


def _empty() -> RequestError:
    return RequestError(_EMPTY)


def _too_long() -> RequestError:
    return RequestError("the line is too long", expected=f"at most {LONGEST >> 20} MiB")


def _not_utf8(where: str) -> RequestError:
    return RequestError(f"{where} is not UTF-8", hint="convert it first: iconv -f latin1 -t utf-8")
