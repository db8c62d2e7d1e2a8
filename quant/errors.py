"""The one error of `quant`: a caller's mistake, or bytes that do not fit their type.

ValueError
└── QuantError

The engine turns it into an error of its own, so the facts are kept apart from the text.
"""

from __future__ import annotations


class QuantError(ValueError):
    """What is wrong, and where known: what was expected, what came, what to do about it."""

    def __init__(
        self, what: str, *, expected: object = None, got: object = None, hint: str | None = None
    ) -> None:
        self.what = what
        self.expected = expected
        self.got = got
        self.hint = hint
        super().__init__(what, expected, got, hint)

    def __str__(self) -> str:
        """One to three lines: the fact; expected and got; the remedy."""
        lines = [self.what]
        if self.expected is not None or self.got is not None:
            facts = [("expected", self.expected), ("got", self.got)]
            lines.append("  " + ", ".join(f"{k} {v}" for k, v in facts if v is not None))
        if self.hint:
            lines.append(f"  {self.hint}")
        return "\n".join(lines)
