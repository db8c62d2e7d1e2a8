"""A script for the interpreter that has pip: fetch one wheel, going on where an earlier try ended.

    python pip_session.py 'name==version' FOLDER [FIND_LINKS]

pip itself keeps nothing of a download that was cut. So its own parts are used, which know the
person's index, proxy, certificates and credentials: the finder names the file, the session reads
the bytes that are missing. Nothing of this package is imported. The answer is one JSON line on
stdout: {"wheel": path} or {"error": kind, "words": text, ...}; kind "pip" means that this pip is
built otherwise, so that only `pip download` remains. When stdin ends, so does the script.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import sys
import threading
import time
from typing import Any

ARGUMENTS = ["--no-deps", "--only-binary", ":all:", "--no-cache-dir", "--no-input"]
CHUNK_BYTES = 1 << 18
TRIES = 5  # in a row without a new byte
WAIT_S = 1.0


class Failed(Exception):
    """Ends the script with an answer."""

    def __init__(self, kind: str, words: str, **facts: Any) -> None:
        super().__init__(words)
        self.answer = {"error": kind, "words": words, **facts}


def main(requirement: str, folder: str) -> dict[str, Any]:
    """The answer."""
    try:
        with _found(requirement) as (session, link):
            return {"wheel": _fetch(session, link, folder)}
    except Failed as e:
        return e.answer
    except OSError as e:
        if e.errno in (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS):
            return {"error": "disk", "words": e.strerror}
        return {"error": "network", "words": f"{type(e).__name__}: {e}"}
    except (ImportError, AttributeError, TypeError) as e:
        return {"error": "pip", "words": f"{type(e).__name__}: {e}"}


@contextlib.contextmanager
def _found(requirement: str) -> Any:
    """pip's session, and its link to the file of a requirement."""
    from pip._internal.commands import create_command
    from pip._vendor.packaging.requirements import Requirement

    wanted = Requirement(requirement)
    command: Any = create_command("download")
    options, _ = command.parse_args([*ARGUMENTS, requirement])
    with command.main_context():
        session = command.get_default_session(options)
        finder = command._build_package_finder(options=options, session=session)
        best = finder.find_best_candidate(wanted.name, wanted.specifier).best_candidate
        if best is None:
            raise Failed("missing", f"no matching distribution found for {requirement}")
        yield session, best.link


def _fetch(session: Any, link: Any, folder: str) -> str:
    """The path of the wheel, whole, with the digest that the index gives."""
    wheel = os.path.join(folder, os.path.basename(link.filename))
    if link.is_file:
        part = f"{wheel}.part"
        shutil.copyfile(link.file_path, part)
    else:
        # Another file of this name must not be continued: the name of what is unfinished tells.
        mark = link.hash or hashlib.sha256(link.url_without_fragment.encode()).hexdigest()
        part = f"{wheel}.{mark[:16]}.part"
        _complete(session, link, part)
    _check(link, part)
    _sync(part)
    os.replace(part, wheel)
    return wheel


def _complete(session: Any, link: Any, part: str) -> None:
    """Read bytes into `part` until the server has no more."""
    with open(part, "ab") as out:
        tries, total = TRIES, None
        while total is None or out.tell() < total:
            before, words = out.tell(), "the connection ended"
            try:
                total = _read(session, link, out)
            except (Failed, TypeError, AttributeError):
                raise
            except Exception as e:  # those of requests and of urllib3 have no other parent
                if isinstance(e, OSError) and e.errno is not None:
                    raise
                words = f"{type(e).__name__}: {e}"
            tries = TRIES if out.tell() > before else tries - 1
            if not tries:
                raise Failed(
                    "network", f"{words}, {out.tell():,} bytes of {link.filename} are here"
                )
            if total is None or out.tell() < total:
                time.sleep(WAIT_S)


def _read(session: Any, link: Any, out: Any) -> int | None:
    """One request for what is missing; the size of the whole file where the server tells."""
    headers = {"Accept-Encoding": "identity"}
    have: int = out.tell()
    if have:
        headers["Range"] = f"bytes={have}-"
    with session.get(link.url_without_fragment, headers=headers, stream=True) as response:
        status: int = response.status_code
        if status == 416:  # nothing is missing, or this is another file
            size = response.headers.get("Content-Range", "").rpartition("/")[2]
            if size == str(have):
                return have
            _empty(out)
            return None
        if status not in (200, 206):
            words = f"{status} {response.reason}: {link.filename}"
            raise Failed("network", words)
        start: int = _start(response)
        if start != have:
            _empty(out)  # all of it comes again
        if start not in (have, 0):
            raise Failed("network", f"another range than the one asked for: {link.filename}")
        length = response.headers.get("Content-Length")
        for chunk in response.raw.stream(CHUNK_BYTES, decode_content=False):
            out.write(chunk)
            out.flush()
        end: int = out.tell()
        return end if length is None else start + int(length)


def _empty(out: Any) -> None:
    out.seek(0)
    out.truncate()


def _start(response: Any) -> int:
    if response.status_code == 200:
        return 0
    given = response.headers.get("Content-Range", "").removeprefix("bytes ").partition("-")[0]
    return int(given) if given.isdecimal() else -1


def _check(link: Any, part: str) -> None:
    """Failed when the digest is not the index's; the file is kept under another name."""
    if link.hash_name not in hashlib.algorithms_guaranteed or not link.hash:
        return
    digest = hashlib.new(link.hash_name)
    with open(part, "rb") as f:
        while chunk := f.read(1 << 20):
            digest.update(chunk)
    if digest.hexdigest() == link.hash:
        return
    bad = os.path.join(os.path.dirname(part), os.path.basename(link.filename) + ".bad")
    size = os.path.getsize(part)
    os.replace(part, bad)
    raise Failed(
        "digest",
        link.filename,
        kept=bad,
        size=size,
        expected=f"{link.hash_name} {link.hash[:16]}…",
        got=f"{digest.hexdigest()[:16]}…",
    )


def _sync(path: str) -> None:
    with open(path, "rb+") as f:
        os.fsync(f.fileno())


def _end_with_parent() -> None:
    with contextlib.suppress(OSError, ValueError):
        sys.stdin.buffer.read()
    os._exit(1)


if __name__ == "__main__":
    # The folder of this script would come first, and its modules have names of their own.
    sys.path[:] = [p for p in sys.path if p != os.path.dirname(os.path.abspath(__file__))]
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        answer = main(*sys.argv[1:3])
    except KeyboardInterrupt:
        os._exit(130)
    print(json.dumps(answer))  # noqa: T201, the parent reads it
    sys.stdout.flush()
    os._exit(0)
