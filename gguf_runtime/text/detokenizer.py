"""Ids to text while they come: every character as soon as it is complete.

At most three bytes wait for their continuation. Bytes that can never become valid give U+FFFD by
Unicode's rule of maximal subparts, so the joined stream equals the whole decoded at once.
Grapheme clusters are not held together: a joiner is shown when it comes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gguf_runtime.text.tokenizer import Tokenizer

# The second byte of a sequence, where it is not simply 0x80 to 0xBF (Unicode, table 3-7).
_SECOND = {0xE0: (0xA0, 0xBF), 0xED: (0x80, 0x9F), 0xF0: (0x90, 0xBF), 0xF4: (0x80, 0x8F)}


class Detokenizer:
    """The text of one stream of ids; control tokens give none unless `special`.

    A first piece that begins with a space keeps it: generation goes on after a prompt.
    """

    def __init__(self, tokenizer: Tokenizer, special: bool = False) -> None:
        self._tokenizer = tokenizer
        self._special = special
        self._held = b""

    def feed(self, i: int) -> str:
        """The text that this id completes; whole characters, maybe none."""
        return self.feed_bytes(self._tokenizer.piece(i, self._special))

    def feed_bytes(self, data: bytes) -> str:
        """The same for bytes."""
        data = self._held + data
        cut = len(data) - unfinished(data)
        self._held = data[cut:]
        return data[:cut].decode("utf-8", "replace")

    def flush(self) -> str:
        """What is left at the end: nothing, or one U+FFFD for an unfinished character."""
        rest, self._held = self._held, b""
        return rest.decode("utf-8", "replace")


def unfinished(data: bytes) -> int:
    """How many of the last bytes, 0 to 3, may still become a character.

    Python's incremental decoder is no help here: it also waits on the first bytes of surrogates.
    """
    for n in range(1, min(3, len(data)) + 1):
        lead = data[-n]
        if 0x80 <= lead < 0xC0:
            continue
        needed = 2 if 0xC2 <= lead < 0xE0 else 3 if 0xE0 <= lead < 0xF0 else 4
        if not 0xC2 <= lead <= 0xF4 or n >= needed:
            return 0
        low, high = _SECOND.get(lead, (0x80, 0xBF))
        return n if n == 1 or low <= data[-n + 1] <= high else 0
    return 0
