"""However a stream is cut, its text is the whole's."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gguf_runtime.text import Detokenizer, StopMatcher

PIECES = [
    b"a",
    b"\xc3",
    b"\xa9",
    b"\xe2\x82",
    b"\xac",
    b"\xf0\x9f",
    b"\x98\x80",
    b"\xed\xa0",
    b"\xff",
]
letters = st.text("ab", max_size=8)


@given(st.lists(st.one_of(st.sampled_from(PIECES), st.binary(max_size=3)), max_size=20))
def test_the_joined_stream_equals_the_whole_decoded(pieces):
    stream = Detokenizer(tokenizer=None)
    shown = []
    whole = b""
    for piece in pieces:
        shown.append(stream.feed_bytes(piece))
        whole += piece
        # Shown at once: all but at most three bytes that may still become a character.
        done = "".join(shown)
        assert whole.decode("utf-8", "replace").startswith(done)
        assert len(whole[: len(whole) - 3].decode("utf-8", "ignore").replace("\ufffd", "")) <= len(
            done.replace("\ufffd", "")
        )

    assert "".join(shown) + stream.flush() == whole.decode("utf-8", "replace")


@given(st.text(max_size=20))
def test_every_character_is_shown_with_its_last_byte(text):
    stream = Detokenizer(tokenizer=None)
    for c in text:
        raw = c.encode()
        assert [stream.feed_bytes(bytes([b])) for b in raw] == [""] * (len(raw) - 1) + [c]


@given(letters, st.text("ab", min_size=1, max_size=4), st.data())
def test_a_streamed_text_stops_where_the_whole_does(text, stop, data):
    matcher = StopMatcher([stop])
    shown = ""
    while text and matcher.found is None:
        cut = data.draw(st.integers(1, len(text)))
        piece, text = text[:cut], text[cut:]
        before = shown
        shown += matcher.feed(piece)
        assert stop not in shown, before
    shown += matcher.flush()

    assert matcher.found == (stop if matcher.found else None)
    assert stop not in shown


@given(st.text("abc", max_size=30), st.text("abc", min_size=1, max_size=4))
def test_letter_by_letter_equals_the_whole(text, stop):
    matcher = StopMatcher([stop])

    shown = "".join(matcher.feed(c) for c in text) + matcher.flush()

    assert shown == text.partition(stop)[0]
    assert matcher.found == (stop if stop in text else None)


@given(st.text("ab", max_size=20), st.lists(st.text("ab", max_size=3), max_size=3))
def test_nothing_is_held_back_that_cannot_become_a_stop_string(text, stops):
    matcher = StopMatcher(stops)
    shown = ""
    for i, c in enumerate(text):
        shown += matcher.feed(c)
        if matcher.found is not None:
            return
        held = text[len(shown) : i + 1]
        assert not held or any(stop.startswith(held) for stop in stops)
