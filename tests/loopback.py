"""HTTP servers on this machine that tests pull from: files by range, a package index, a hub.

What they sent is recorded, and they can be made to stop in the middle, to send slowly, or to ignore
ranges.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PIECE = 4096


@dataclass
class Sent:
    """One answer: the path, the first byte, the bytes of the body that went out."""

    path: str
    start: int
    size: int = 0


@dataclass
class Served:
    """What a test says about the server and reads from it."""

    files: dict[str, bytes] = field(default_factory=dict)
    pages: Callable[[Handler], bool] | None = None
    ranges: bool = True
    cut_after: int | None = None  # of the next answers with a file: bytes until the line drops
    cuts: int = 1 << 30  # how many
    pause_s: float = 0.0  # between pieces
    sent: list[Sent] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    url: str = ""

    def bytes_of(self, end: str) -> int:
        return sum(s.size for s in self.sent if s.path.endswith(end))


class Handler(BaseHTTPRequestHandler):
    """Answers from `served`, of the server."""

    protocol_version = "HTTP/1.1"

    @property
    def served(self) -> Served:
        return self.server.served  # type: ignore[attr-defined]

    def log_message(self, *_) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        self.served.requests.append(f"{self.command} {self.path}")
        path = self.path.split("?")[0]
        if self.served.pages is not None and self.served.pages(self):
            return
        data = self.served.files.get(path)
        if data is None:
            self.reply(404, b"no such page")
        elif path.endswith("/"):
            self.reply(200, data)
        else:
            self.file(path, data)

    def reply(self, code: int, body: bytes, kind: str = "text/html", **headers: str) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def file(self, path: str, data: bytes, **headers: str) -> None:
        match = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        start = int(match[1]) if match and self.served.ranges else 0
        if start and start >= len(data):
            self.reply(416, b"", Content_Range=f"bytes */{len(data)}")
            return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(data) - start))
        self.send_header("ETag", f'"{hashlib.sha256(data).hexdigest()}"')
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self._body(path, data, start)

    def _body(self, path: str, data: bytes, start: int) -> None:
        served, sent = self.served, Sent(path, start)
        served.sent.append(sent)
        stop = None
        if served.cut_after is not None and served.cuts > 0:
            served.cuts -= 1
            stop = start + served.cut_after
        for at in range(start, len(data), PIECE):
            if stop is not None and at >= stop:
                self.wfile.flush()
                self.connection.close()
                self.close_connection = True
                return
            try:
                self.wfile.write(data[at : at + PIECE])
            except OSError:  # the other side was killed
                self.close_connection = True
                return
            sent.size += len(data[at : at + PIECE])
            if served.pause_s:
                time.sleep(served.pause_s)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_) -> None:
        pass  # clients are killed on purpose


@contextmanager
def serving(served: Served):
    """The server at work; `served.url` has no slash at its end."""
    server = _Server(("127.0.0.1", 0), Handler)
    server.served = served  # type: ignore[attr-defined]
    served.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def index(served: Served, wheels: dict[str, bytes], digests: bool = True) -> None:
    """Serve wheels, by file name, as a package index at /simple/."""
    for name, data in wheels.items():
        project = name.split("-")[0].replace("_", "-")
        mark = f"#sha256={hashlib.sha256(data).hexdigest()}" if digests else ""
        link = f'<!DOCTYPE html><html><body><a href="/files/{name}{mark}">{name}</a></body></html>'
        served.files[f"/simple/{project}/"] = link.encode()
        served.files[f"/files/{name}"] = data


@dataclass
class Repo:
    """A repository of a hub: its files, and what the hub demands."""

    files: dict[str, bytes]
    licence: str = "apache-2.0"
    commit: str = "0123456789abcdef0123456789abcdef01234567"
    gated: bool = False  # no token may fetch
    token: str | None = None  # who has none of this value is not told that it exists
    claims: dict[str, str] = field(default_factory=dict)  # digests that are not those of the files


def hub(served: Served, repos: dict[str, Repo], cdn: str = "localhost") -> list[str]:
    """Serve repositories as huggingface.co does; the list collects what tokens the CDN was shown."""
    seen: list[str] = []

    def refused(handler: Handler, repo: Repo | None) -> bool:
        token = handler.headers.get("Authorization", "").removeprefix("Bearer ")
        if token == "wrong":
            handler.reply(401, b"", X_Error_Message="Invalid credentials in Authorization header")
        elif repo is None or (repo.token is not None and token != repo.token):
            handler.reply(401, b"", X_Error_Code="RepoNotFound")
        elif repo.gated and "/resolve/" in handler.path:
            handler.reply(403, b"", X_Error_Code="GatedRepo", X_Error_Message="Access restricted")
        else:
            return False
        return True

    def pages(handler: Handler) -> bool:
        path = handler.path.split("?")[0].lstrip("/")
        if path.startswith("cdn/"):
            seen.append(handler.headers.get("Authorization", ""))
            _, name, file = path.split("/", 2)
            data = repos[name.replace("--", "/")].files[file]
            handler.file(path, data)
            return True
        if path.startswith("api/models/"):
            name = path.removeprefix("api/models/")
            repo = repos.get(name)
            if not refused(handler, repo):
                assert repo is not None
                handler.reply(200, json.dumps(_info(name, repo)).encode(), "application/json")
            return True
        org, name, word, commit, file = ([*path.split("/", 4), *[""] * 5])[:5]
        repo = repos.get(f"{org}/{name}")
        if word != "resolve" or refused(handler, repo):
            return word == "resolve"
        assert repo is not None
        assert commit == repo.commit
        target = f"{served.url}/cdn/{org}--{name}/{file}".replace("127.0.0.1", cdn)
        handler.reply(302, b"", Location=target)
        return True

    served.pages = pages
    return seen


def _info(name: str, repo: Repo) -> dict[str, object]:
    def sibling(file: str, data: bytes) -> dict[str, object]:
        digest = repo.claims.get(file, hashlib.sha256(data).hexdigest())
        git = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
        row = {"rfilename": file, "size": len(data), "blobId": git}
        if file.endswith(".gguf"):
            row["lfs"] = {"sha256": digest, "size": len(data), "pointerSize": 134}
        return row

    return {
        "_id": "0",
        "id": name,
        "modelId": name,
        "sha": repo.commit,
        "private": False,
        "gated": "manual" if repo.gated else False,
        "tags": ["gguf", f"license:{repo.licence}"],
        "cardData": {"license": repo.licence},
        "siblings": [sibling(f, d) for f, d in repo.files.items()],
    }
