"""Near misses: what somebody may have meant."""

from __future__ import annotations


def suggestion(word: str, choices: list[str]) -> str | None:
    """The nearest choice, if one is near; letter case does not matter."""
    from difflib import get_close_matches

    near = get_close_matches(word.lower(), [c.lower() for c in choices], n=1, cutoff=0.6)
    return next((c for c in choices if c.lower() == near[0]), None) if near else None
