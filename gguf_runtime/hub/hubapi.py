"""What the hub says about a repository, and its refusals in our words.

`huggingface_hub` knows the endpoint, the token, proxies and certificates; it is imported when the
network is used, and neither prints nor reports usage then.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from gguf_runtime.errors import DownloadError, GGUFRuntimeError, show
from gguf_runtime.hub.hubcache import HubName
from gguf_runtime.hub.places import network_is_off
from gguf_runtime.hub.quants import Choice, choices, choose

OFFICIAL = "https://huggingface.co"


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file of a repository. `etag` is its name among the blobs of the cache."""

    name: str
    size_bytes: int
    etag: str
    sha256: str | None


@dataclass(frozen=True, slots=True)
class Offer:
    """A model on the hub as it may be fetched: all its parts, of one commit."""

    name: HubName
    commit: str
    choice: Choice
    files: tuple[RemoteFile, ...]
    licence: str

    @property
    def size_bytes(self) -> int:
        """Of all parts."""
        return sum(f.size_bytes for f in self.files)


def look(name: HubName, *, offline: bool = False) -> Offer:
    """Ask the hub which file a name means; fetches nothing.

    Raises:
        ModelError: the repository has no such model, or several that fit.
        DownloadError: the network is off, or the hub refuses.
    """
    if offline or network_is_off():
        raise DownloadError(
            f"{name} is not on this machine and the network is switched off",
            hint=f"without --offline and HF_HUB_OFFLINE: gguf-runtime pull {name}",
        )
    with speaking(name) as hub:
        info = hub.HfApi(library_name="gguf-runtime").model_info(name.repo, files_metadata=True)
    files = {s.rfilename: s for s in info.siblings or []}
    choice = choose(choices({n: s.size or 0 for n, s in files.items()}), name.want, name.repo)
    if choice.missing:
        raise DownloadError(
            f"{len(choice.missing):,} parts of this model are not in the repository",
            where=str(name),
            expected=f"{len(choice.files) + len(choice.missing):,} parts",
            got=f"{len(choice.files):,}; the first that is missing is {choice.missing[0]}",
            hint="choose another file: gguf-runtime pull hf:" + name.repo,
        )
    return Offer(
        name,
        str(info.sha),
        choice,
        tuple(_remote(name, files[n]) for n in choice.files),
        _licence(info),
    )


@contextmanager
def speaking(name: HubName) -> Iterator[Any]:
    """The library `huggingface_hub`, quiet; its errors become ours."""
    hub = _library()
    from huggingface_hub import errors

    logging: Any = hub.utils.logging
    loud = logging.get_verbosity()
    logging.set_verbosity_error()
    transport = getattr(errors, "HTTPError", OSError)
    try:
        yield hub
    except GGUFRuntimeError:
        raise
    except errors.HfHubHTTPError as e:
        raise _refusal(name, e, errors) from e
    except (transport, ConnectionError, TimeoutError) as e:
        raise DownloadError(
            f"{hub.constants.ENDPOINT} cannot be reached",
            where=str(name),
            got=f"{type(e).__name__}: {e}"[:300],
            hint="is the network there? a proxy: HTTPS_PROXY, another hub: HF_ENDPOINT",
        ) from e
    finally:
        logging.set_verbosity(loud)


def _library() -> Any:
    key, before = "HF_HUB_DISABLE_TELEMETRY", os.environ.get("HF_HUB_DISABLE_TELEMETRY")
    os.environ.setdefault(key, "1")  # it is read on import, and never again
    try:
        import huggingface_hub
        import huggingface_hub.constants
        import huggingface_hub.file_download
    finally:
        if before is None:
            del os.environ[key]
    return huggingface_hub


def _remote(name: HubName, sibling: Any) -> RemoteFile:
    sha256 = getattr(sibling.lfs, "sha256", None)
    etag, size = sha256 or sibling.blob_id, sibling.size
    good = isinstance(etag, str) and etag.isalnum() and isinstance(size, int) and size > 0
    if not good or sibling.rfilename.startswith("/") or ".." in sibling.rfilename.split("/"):
        raise DownloadError(
            f"the hub does not tell size and digest of {show(sibling.rfilename)}",
            where=str(name),
            got=f"size {show(size)}, digest {show(etag)}",
            hint="try again later",
        )
    return RemoteFile(sibling.rfilename, size, etag, sha256)


def _licence(info: Any) -> str:
    card = info.card_data
    licence = card.get("license") if card is not None else None
    if not licence:
        tags = (t for t in info.tags or [] if t.startswith("license:"))
        licence = next(tags, "").removeprefix("license:")
    if licence == "other" and card is not None:
        licence = card.get("license_name") or licence
    return str(licence) if licence else "no licence stated"


def _refusal(name: HubName, e: Any, errors: Any) -> DownloadError:
    from huggingface_hub import constants, get_token

    page = f"{constants.ENDPOINT}/{name.repo}"
    code = e.response.status_code if e.response is not None else 0
    has_token = get_token() is not None
    tokens = f"{constants.ENDPOINT}/settings/tokens"
    use_token = f"HF_TOKEN=… gguf-runtime pull {name} (a token: {tokens})"
    if isinstance(e, errors.GatedRepoError):
        what = "this repository is gated: who wants it must agree to its terms first"
        hint = f"agree at {page}" + (", with the account of HF_TOKEN" if has_token else "")
        hint += ", then: " + (f"gguf-runtime pull {name}" if has_token else use_token)
    elif isinstance(e, errors.RepositoryNotFoundError):
        what = "the hub has no such repository, or it is private"
        hint = f"look at {page}; a private one: {use_token}"
        if has_token:
            hint = f"look at {page} with the account of HF_TOKEN"
    elif code == 401:
        what = "the hub does not accept this token"
        hint = f"a new one: {tokens}; without any: HF_TOKEN= gguf-runtime pull {name}"
    elif code == 403:
        what, hint = "the hub does not allow this", f"look at {page}"
    elif code == 404:
        what = "the hub no longer has this file"
        hint = f"look at {page}; then: gguf-runtime pull {name}"
    elif code == 429:
        what, hint = "the hub asks to wait: too many requests", f"later: gguf-runtime pull {name}"
    else:
        what, hint = "the hub failed", f"later: gguf-runtime pull {name}"
    message = str(getattr(e, "server_message", None) or "").strip().splitlines()
    got = f"HTTP {code}" + (f": {message[0][:200]}" if message else "")
    return DownloadError(what, where=str(name), got=got, hint=hint)
