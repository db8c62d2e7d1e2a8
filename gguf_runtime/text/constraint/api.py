"""`Constraint`: what an answer has to be, as a language of texts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gguf_runtime.errors import RequestError, show
from gguf_runtime.text.constraint import gbnf, lark, schema, types
from gguf_runtime.text.constraint.vocabulary import Vocabulary, bytes_alone, vocabulary_of

if TYPE_CHECKING:
    from llguidance import LLMatcher

    from gguf_runtime.text.tokenizer import Tokenizer

U8 = NDArray[np.uint8]

MOST_CHOICES = 10_000
# Tokens may be any that fit; without it forced text allows only the usual tokens for it.
ANY_TOKENS = '%llguidance {"no_forcing": true}\n'


class Constraint:
    """A set of texts: those that a JSON schema, an expression, a grammar or a list of choices allows.

    Made by `from_schema`, `from_regex`, `from_gbnf` or `from_choices`, each of which raises
    RequestError for what cannot be enforced.
    """

    def __init__(self, kind: str, source: Any, grammar: str, target: Any = None) -> None:
        self.kind, self.source, self.grammar = kind, source, grammar
        self.target = target
        """A Python type whose schema this is; `parse` makes its objects."""

    @classmethod
    def from_schema(cls, source: Any) -> Constraint:
        """JSON texts that a schema allows.

        Args:
            source: a schema (dict, or its JSON text), a Pydantic model, a dataclass, a TypedDict, an
                Enum, a Literal, or a type made of these with list, dict, tuple, unions and None.

        Raises:
            RequestError: a keyword or type that cannot be enforced, or a schema that nothing fits.
        """
        target = None
        if not isinstance(source, dict | str | bytes | bool):
            source, target = types.schema_of(source), source
        ready = schema.prepared(source)
        found = cls("schema", source, f"start: %json {json.dumps(ready)}\n", target)
        error = found._error()
        if error:
            raise schema.located(ready, error)
        if found.shortest is None:
            raise RequestError(
                "no JSON text was found that satisfies the schema and ends",
                where="schema",
                hint="a part that holds itself must be optional, or an array or a union with null",
            )
        return found

    @classmethod
    def from_regex(cls, text: str) -> Constraint:
        """Texts that match an expression as a whole; RequestError for look-around and back-references."""
        if not isinstance(text, str):
            raise RequestError("an expression is a text", where="regex", got=show(text))
        body = text.replace("\n", r"\n").replace("\r", r"\r")
        escaped = re.sub(r"(?<!\\)((?:\\\\)*)/", r"\1\\/", body)
        found = cls("regex", text, f"start: /{escaped}/\n" if text else 'start: ""\n')
        error = found._error()
        if error:
            raise RequestError(
                f"the expression cannot be used: {_regex_fact(error)}", where="regex"
            )
        return found

    @classmethod
    def from_gbnf(cls, text: str) -> Constraint:
        """Sentences of a grammar in llama.cpp's notation; RequestError with line and column."""
        if not isinstance(text, str):
            raise RequestError("a grammar is a text", where="grammar", got=show(text))
        found = cls("grammar", text, lark.to_lark(gbnf.parse(text)))
        error = found._error()
        if error:
            fact = error.strip().partition("\n")[0]
            raise RequestError(f"the grammar cannot be used: {fact}", where="grammar")
        return found

    @classmethod
    def from_choices(cls, choices: Iterable[str]) -> Constraint:
        """One of several texts."""
        found = list(choices) if not isinstance(choices, str) else []
        if not found or not all(isinstance(c, str) for c in found):
            raise RequestError(
                "choices are a list of texts", where="choices", expected="at least one"
            )
        if len(found) > MOST_CHOICES:
            raise RequestError(
                "too many choices", expected=f"at most {MOST_CHOICES:,}", got=f"{len(found):,}"
            )
        rules: gbnf.Rules = {"root": [gbnf.literal(c) for c in dict.fromkeys(found)]}
        return cls("choices", found, lark.to_lark(rules))

    # ---- questions about texts -----------------------------------------------------------------

    def accepts(self, text: str) -> bool:
        """Whether the whole text is allowed."""
        matcher = self._read(text)
        return matcher is not None and bool(matcher.is_accepting())

    def can_continue(self, text: str) -> bool:
        """Whether the text is the beginning of an allowed one, or is one."""
        return self._read(text) is not None

    def parse(self, text: str) -> Any:
        """The object that an answer stands for: of the Python type, if one was given; else JSON."""
        if self.kind != "schema":
            return text
        value = json.loads(text)
        return value if self.target is None else types.value_of(self.target, value)

    @cached_property
    def shortest(self) -> bytes | None:
        """A text that is allowed, as short as a quick search finds; None: there seems to be none."""
        from gguf_runtime.text.constraint.closing import shortest

        return shortest(self.matcher(bytes_alone()), self.examples, self.kind == "schema")

    @cached_property
    def examples(self) -> list[bytes]:
        """Short texts that strings of a schema may have to hold."""
        from gguf_runtime.text.constraint.closing import example_of

        if self.kind != "schema":
            return []
        found = dict.fromkeys(example_of(p) for p in schema.patterns(self.source))
        return [text for text in found if text]

    # ---- masks ---------------------------------------------------------------------------------

    def mask(self, tokenizer: Tokenizer, ids: Sequence[int]) -> U8:
        """Tokens that may follow `ids`.

        Returns:
            uint8 (ceil(n_vocab / 8),), bit i % 8 of byte i // 8 for token i. Tokens that end a text
            are allowed where the text so far is whole.

        Raises:
            RequestError: ids that the constraint does not allow.
        """
        vocabulary = vocabulary_of(tokenizer)
        matcher = self.matcher(vocabulary, any_tokens=True)
        if matcher.try_consume_tokens(list(ids)) != len(ids):
            raise RequestError(
                "these tokens are not allowed", where="constraint", got=show(list(ids))
            )
        return mask_of(matcher, vocabulary)

    def matcher(self, vocabulary: Vocabulary, any_tokens: bool = False) -> LLMatcher:
        """A fresh state of the text so far, empty, over a vocabulary."""
        from llguidance import LLMatcher

        grammar = ANY_TOKENS + self.grammar if any_tokens else self.grammar
        return LLMatcher(vocabulary.tokenizer, LLMatcher.grammar_from_lark(grammar), log_level=0)

    def _error(self) -> str:
        matcher = self.matcher(bytes_alone())
        return str(matcher.get_error()) if matcher.is_error() else ""

    def _read(self, text: str) -> LLMatcher | None:
        matcher = self.matcher(bytes_alone(), any_tokens=True)
        data = list(text.encode("utf-8", "surrogatepass"))
        return matcher if matcher.try_consume_tokens(data) == len(data) else None

    def __repr__(self) -> str:
        return f"<Constraint, {self.kind} {show(self.source)[:60]}>"


def mask_of(matcher: LLMatcher, vocabulary: Vocabulary) -> U8:
    """Bits of the tokens that may come next; those that end a text where it is whole."""
    raw = np.frombuffer(matcher.compute_bitmask(), np.uint8)[: len(vocabulary.writable)]
    bits: U8 = raw & vocabulary.writable
    if matcher.is_accepting():
        for i in vocabulary.end_ids:
            bits[i >> 3] |= 1 << (i & 7)
    return bits


def _regex_fact(error: str) -> str:
    lines = [line.strip() for line in error.strip().splitlines()]
    named = [line for line in lines if line.startswith("error:")]
    fact = named[0].removeprefix("error:") if named else lines[0]
    return re.sub(r"^at \d+\(\d+\): ", "", fact.strip())
