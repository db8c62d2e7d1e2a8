"""Stop strings in a stream: they and what follows are never shown.

A tail that may still become a stop string is held back. The earliest match wins, at the same place
the longest. Matching costs O(held tail + piece) per piece: what was shown is not looked at again.
"""

from __future__ import annotations

from collections.abc import Iterable

from gguf_runtime.errors import RequestError, show


class StopMatcher:
    """Text in, text to show out; `found` is the stop string that ended the stream."""

    def __init__(self, stops: Iterable[str]) -> None:
        stops = list(stops)
        for stop in stops:
            if not isinstance(stop, str):
                raise RequestError("a stop string is no text", where="stop", got=show(stop))
        self._stops = [stop for stop in dict.fromkeys(stops) if stop]
        self._held = ""
        self.found: str | None = None

    def feed(self, text: str) -> str:
        """What may be shown now; nothing once a stop string was met."""
        if not self._stops:
            return text
        if self.found is not None:
            return ""
        text = self._held + text
        hits = [(at, -len(stop), stop) for stop in self._stops if (at := text.find(stop)) >= 0]
        if hits:
            at, _, self.found = min(hits)
            self._held = ""
            return text[:at]
        shown = min((_tail(text, stop) for stop in self._stops), default=len(text))
        self._held = text[shown:]
        return text[:shown]

    def flush(self) -> str:
        """What was held back, when the stream ends without a stop string."""
        rest, self._held = self._held, ""
        return rest


def _tail(text: str, stop: str) -> int:
    """Where the longest tail begins that is a beginning of the stop string."""
    at = text.find(stop[0], max(0, len(text) - len(stop) + 1))
    while at >= 0:
        if stop.startswith(text[at:]):
            return at
        at = text.find(stop[0], at + 1)
    return len(text)
