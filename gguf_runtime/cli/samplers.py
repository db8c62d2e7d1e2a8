"""Options of the samplers beyond the usual ones."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from gguf_runtime.cli.groups import Group
from gguf_runtime.cli.values import UsageError

_BIAS = re.compile(r"(\d+)\s*(?:=\s*([+-]?\S+)|([+-]\S+))")


def _number(flag: str, help: str, *other: str, low: float | None = None) -> Any:
    return typer.Option(
        flag, *other, metavar="X", min=low, rich_help_panel="more sampling", help=help
    )


def _count(flag: str, help: str, low: int = 0, high: int | None = None) -> Any:
    return typer.Option(
        flag, metavar="N", min=low, max=high, rich_help_panel="more sampling", help=help
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Samplers(Group):
    """The rest of llama.cpp's samplers; None where nobody asked."""

    samplers: Annotated[
        str | None,
        typer.Option(
            "--samplers",
            metavar="A;B;…",
            rich_help_panel="more sampling",
            help="the chain in order (default penalties;dry;top_n_sigma;top_k;typical_p;top_p;min_p;"
            "xtc;temperature)",
        ),
    ] = None
    top_n_sigma: Annotated[
        float | None, _number("--top-n-sigma", "keep logits this many deviations below the best")
    ] = None
    typical_p: Annotated[
        float | None,
        _number("--typical-p", "keep those of usual surprise; 1 is off", "--typical", low=0),
    ] = None
    xtc_probability: Annotated[
        float | None,
        _number("--xtc-probability", "how often the likeliest are left out (default 0)", low=0),
    ] = None
    xtc_threshold: Annotated[
        float | None,
        _number("--xtc-threshold", "what counts as likely for it (default 0.1)", low=0),
    ] = None
    dynatemp_range: Annotated[
        float | None,
        _number("--dynatemp-range", "let the temperature follow the entropy, so far", low=0),
    ] = None
    dynatemp_exponent: Annotated[
        float | None,
        _number("--dynatemp-exponent", "how it follows (default 1)", "--dynatemp-exp", low=0),
    ] = None
    dry_multiplier: Annotated[
        float | None,
        _number("--dry-multiplier", "against repeated runs of tokens; 0 is off", low=0),
    ] = None
    dry_base: Annotated[
        float | None, _number("--dry-base", "growth by the length of a run (default 1.75)", low=0)
    ] = None
    dry_allowed_length: Annotated[
        int | None, _count("--dry-allowed-length", "runs so long are free (default 2)")
    ] = None
    dry_last_n: Annotated[
        int | None, _count("--dry-last-n", "tokens that are looked at (default 64)")
    ] = None
    dry_breakers: Annotated[
        list[str] | None,
        typer.Option(
            "--dry-breaker",
            "--dry-sequence-breaker",
            metavar="TEXT",
            rich_help_panel="more sampling",
            help=r"what ends a run; repeatable (default new line, :, double quote, *)",
        ),
    ] = None
    mirostat: Annotated[
        int | None, _count("--mirostat", "hold the surprise: version 1 or 2; 0 is off", high=2)
    ] = None
    mirostat_tau: Annotated[
        float | None,
        _number("--mirostat-tau", "the surprise, in bits (default 5)", "--mirostat-ent", low=0),
    ] = None
    mirostat_eta: Annotated[
        float | None,
        _number("--mirostat-eta", "how fast it is followed (default 0.1)", "--mirostat-lr", low=0),
    ] = None
    adaptive_target: Annotated[
        float | None, _number("--adaptive-target", "aim at tokens so likely; below 0 is off")
    ] = None
    adaptive_decay: Annotated[
        float | None, _number("--adaptive-decay", "memory of that (default 0.9)", low=0)
    ] = None
    min_keep: Annotated[
        int | None, _count("--min-keep", "candidates that cuts by probability leave at least")
    ] = None
    logit_bias: Annotated[
        list[str] | None,
        typer.Option(
            "--logit-bias",
            "-l",
            metavar="ID=X",
            rich_help_panel="more sampling",
            help="add X to a token's logit; ID=-inf forbids it; repeatable",
        ),
    ] = None
    ignore_eos: Annotated[
        bool,
        typer.Option(
            "--ignore-eos", rich_help_panel="more sampling", help="never end by the end of turn"
        ),
    ] = False


_PLAIN = (
    *("samplers", "top_n_sigma", "typical_p", "xtc_probability", "xtc_threshold"),
    *("dynatemp_range", "dynatemp_exponent", "dry_multiplier", "dry_base", "dry_allowed_length"),
    *("dry_last_n", "mirostat", "mirostat_tau", "mirostat_eta", "adaptive_target"),
    *("adaptive_decay", "min_keep"),
)


def asked(s: Samplers) -> dict[str, Any]:
    """What the engine takes."""
    found = {k: getattr(s, k) for k in _PLAIN}
    found["dry_breakers"] = list(s.dry_breakers) if s.dry_breakers else None
    found["logit_bias"] = [_bias(text) for text in s.logit_bias] if s.logit_bias else None
    found["ignore_eos"] = s.ignore_eos or None
    return {k: v for k, v in found.items() if v is not None}


def _bias(text: str) -> tuple[int, float]:
    match = _BIAS.fullmatch(text.strip())
    try:
        value = float((match[2] or match[3]) if match else "")
    except ValueError:
        value = math.nan
    if match is None or math.isnan(value) or value == math.inf:
        raise UsageError("--logit-bias: not a bias", f"expected 42=1.5 or 42=-inf, got {text!r}")
    return int(match[1]), value
