"""Pull a model of the hub into the hub's own cache, where other programs find it too.

A part is written beside its final place as `blobs/DIGEST.incomplete`, continued by byte range after
any interruption, checked against the digest that the hub gives, and renamed. What was fetched is
noted in `.gguf-runtime.json` of the repository's folder: `rm` deletes nothing else.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from gguf_runtime.errors import DownloadError, MachineError
from gguf_runtime.hub.hubapi import Offer, RemoteFile, look, speaking
from gguf_runtime.hub.hubcache import HubName, cache_dir, repo_dir
from gguf_runtime.hub.places import head
from gguf_runtime.hub.stage import (
    CHUNK_BYTES,
    Progress,
    cannot_write,
    check_space,
    digest,
    sync_folder,
)

LEDGER = ".gguf-runtime.json"
ELSEWHERE = "export HF_HOME=/some/folder"
TRIES = 5  # in a row without a new byte
WAIT_S = 1.0
WITHOUT_XET = 50_000_000_000  # larger files come only through another protocol


def pull(name: HubName, offer: Offer | None = None, *, progress: Progress | None = None) -> Path:
    """The file of a model of the hub, fetched unless it is there with the right digest.

    Raises:
        ModelError: no such model in the repository, or several.
        DownloadError: the hub cannot be reached or refuses, or a digest differs.
        MachineError: no space, or a folder that cannot be written.
    """
    report = progress or (lambda what, done, total: None)
    offer = offer or look(name)
    folder = repo_dir(name.repo)
    if folder is None:
        raise MachineError("no folder is known for the hub's cache", hint=f"name one: {ELSEWHERE}")
    try:
        return _pull(offer, folder, report)
    except OSError as e:
        if isinstance(e, FileNotFoundError) or e.errno is None:
            raise
        raise cannot_write(e, folder, ELSEWHERE) from e


def fetched_blobs(folder: Path) -> set[str]:
    """Names of the blobs of a repository that `pull` fetched."""
    try:
        names = json.loads(head(folder / LEDGER, 1 << 20) or b"{}").get("blobs", [])
        return {n for n in names if isinstance(n, str) and n.isalnum()}
    except (ValueError, RecursionError, AttributeError, TypeError):
        return set()


def write_ledger(folder: Path, blobs: set[str]) -> None:
    """Note the blobs that `pull` fetched; an empty set takes the note away."""
    ledger = folder / LEDGER
    if not blobs:
        ledger.unlink(missing_ok=True)
        return
    scratch = folder / f"{LEDGER}.{os.getpid()}"
    scratch.write_text(json.dumps({"blobs": sorted(blobs)}))
    os.replace(scratch, ledger)


def _pull(offer: Offer, folder: Path, report: Progress) -> Path:
    blobs = folder / "blobs"
    blobs.mkdir(parents=True, exist_ok=True)
    missing = [f for f in offer.files if not _whole(f, blobs / f.etag, report)]
    held = sum(_size(_partial(blobs, f)) for f in missing)
    needed = sum(f.size_bytes for f in missing) - held
    if missing:
        check_space(blobs, str(offer.name), max(needed, 0), ELSEWHERE)
    done = offer.size_bytes - sum(f.size_bytes for f in missing)
    for file in missing:
        if file.size_bytes > WITHOUT_XET:
            raise DownloadError(
                f"{file.name} is larger than the hub sends over HTTP",
                where=str(offer.name),
                got=f"{file.size_bytes:,} bytes",
                hint=f"fetch it with: hf download {offer.name.repo} {file.name}"
                "; it is found in the hub's cache then",
            )
        with _locked(folder, file, report):
            if not _whole(file, blobs / file.etag, report):
                _fetch(offer, file, blobs, report, done)
                write_ledger(folder, fetched_blobs(folder) | {file.etag})
        done += file.size_bytes
    snapshot = folder / "snapshots" / offer.commit
    for file in offer.files:
        _link(snapshot / file.name, blobs / file.etag)
    refs = folder / "refs"
    refs.mkdir(exist_ok=True)
    scratch = refs / f".main.{os.getpid()}"
    scratch.write_text(offer.commit)
    os.replace(scratch, refs / "main")
    return snapshot / offer.choice.file


def _whole(file: RemoteFile, blob: Path, report: Progress) -> bool:
    if _size(blob) != file.size_bytes:
        return False
    return _digest(file, blob, report) == (file.sha256 or file.etag)


def _digest(file: RemoteFile, path: Path, report: Progress) -> str:
    if file.sha256 is not None:
        return digest(path, report)
    found = hashlib.sha1(b"blob %d\0" % file.size_bytes)  # git's name of a file without LFS
    with path.open("rb") as f:
        while chunk := f.read(CHUNK_BYTES):
            found.update(chunk)
    return found.hexdigest()


def _fetch(offer: Offer, file: RemoteFile, blobs: Path, report: Progress, before: int) -> None:
    partial = _partial(blobs, file)
    total = offer.size_bytes

    def tick(done: int) -> None:
        report("downloading", min(before + done, total), total)

    with partial.open("ab", buffering=0) as out:
        if out.tell() > file.size_bytes:
            _empty(out)
        with speaking(offer.name) as hub:
            _complete(hub, offer, file, out, tick)
        os.fsync(out.fileno())
    got = _digest(file, partial, report)
    if got != (file.sha256 or file.etag):
        bad = blobs / f"{file.etag}.bad"
        os.replace(partial, bad)
        raise DownloadError(
            f"{file.name} (bytes 0 to {file.size_bytes:,}) is not the file that the hub describes;"
            f" kept as {bad}",
            where=str(offer.name),
            expected=f"sha256 {(file.sha256 or file.etag)[:16]}…",
            got=f"{got[:16]}…",
            hint=f"the other parts are kept; try again: gguf-runtime pull {offer.name}",
        )
    os.replace(partial, blobs / file.etag)
    (blobs / f"{file.etag}.bad").unlink(missing_ok=True)
    sync_folder(blobs)


def _complete(hub: Any, offer: Offer, file: RemoteFile, out: Any, tick: Any) -> None:
    """Read bytes until the file has its size."""
    url = hub.hf_hub_url(offer.name.repo, file.name, revision=offer.commit)
    headers = hub.utils.build_hf_headers(library_name="gguf-runtime")
    headers["Accept-Encoding"] = "identity"
    transport = hub.errors.HTTPError
    tries = TRIES
    tick(out.tell())
    while out.tell() < file.size_bytes:
        before = out.tell()
        try:
            _read(hub, url, headers, file, out, tick)
        except hub.errors.HfHubHTTPError:
            raise
        except transport:
            if tries == 1 and out.tell() == before:
                raise
        tries = TRIES if out.tell() > before else tries - 1
        if not tries:
            raise DownloadError(
                "the hub ends in the middle of the file",
                where=file.name,
                expected=f"{file.size_bytes:,} bytes",
                got=f"{out.tell():,}",
                hint=f"what is here is kept; later: gguf-runtime pull {offer.name}",
            )
        if out.tell() < file.size_bytes:
            time.sleep(WAIT_S)


def _read(
    hub: Any, url: str, headers: dict[str, str], file: RemoteFile, out: Any, tick: Any
) -> None:
    """One request for what is missing."""
    have: int = out.tell()
    ask = headers | ({"Range": f"bytes={have}-"} if have else {})
    session, timeout = hub.utils.get_session(), hub.constants.HF_HUB_DOWNLOAD_TIMEOUT
    with session.stream(
        "GET", url, headers=ask, timeout=timeout, follow_redirects=True
    ) as response:
        if response.status_code == 416:
            _empty(out)
            return
        hub.utils.hf_raise_for_status(response)
        given = response.headers.get("Content-Range", "").removeprefix("bytes ").partition("-")[0]
        start = int(given) if response.status_code == 206 and given.isdecimal() else 0
        if start != have:
            _empty(out)
        if start not in (have, 0):
            return
        for chunk in response.iter_raw():
            out.write(chunk[: file.size_bytes - out.tell()])
            tick(out.tell())
            if out.tell() >= file.size_bytes:
                return


def _empty(out: Any) -> None:
    out.seek(0)
    out.truncate()


@contextmanager
def _locked(folder: Path, file: RemoteFile, report: Progress) -> Iterator[None]:
    """The lock that the hub's own library takes for a blob."""
    from filelock import Timeout
    from huggingface_hub import utils

    hub: Any = utils
    weak = hub.WeakFileLock
    cache = cache_dir()
    assert cache is not None
    lock = cache / ".locks" / folder.name / f"{file.etag}.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    holder = weak(lock, timeout=0.1)
    try:
        holder.__enter__()
    except Timeout:
        report("waiting for another pull", 0, 0)
        holder = weak(lock)
        holder.__enter__()
    try:
        yield
    finally:
        holder.__exit__(None, None, None)


def _link(link: Path, blob: Path) -> None:
    """A link to a blob, in place at once; where there are no links, the blob itself."""
    link.parent.mkdir(parents=True, exist_ok=True)
    scratch = link.with_name(f".{link.name}.{os.getpid()}")
    scratch.unlink(missing_ok=True)
    try:
        scratch.symlink_to(os.path.relpath(blob, link.parent))
    except (OSError, NotImplementedError):
        if os.name != "nt":
            raise
        with suppress(FileExistsError):
            os.link(blob, scratch)
    os.replace(scratch, link)


def _partial(blobs: Path, file: RemoteFile) -> Path:
    return blobs / f"{file.etag}.incomplete"


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
