"""Expressions of published pre-tokenizers, and where llama.cpp's are others.

Checked: tests/golden/text/test_pretokenizers.py, against splits by llama.cpp and by `tokenizers`.
"""

from __future__ import annotations

_SHORT = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_ANY_S = r"(?:'[sSſ]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"  # (?i:'s|…)
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_SLASH = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"
_ONE_BY_ONE = rf"{_SHORT}|{_WORD}|\p{{N}}|{_REST}|{_SPACES}"
_ASCII_PUNCT = r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]"""
_CJK = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
_UPPER, _LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
_BEFORE = r"[^\r\n\p{L}\p{N}]?"


def _cased(upper: str, lower: str, short: str, numbers: str, rest: str = _SLASH) -> str:
    """Words that change from upper to lower case once at most."""
    return (
        rf"{_BEFORE}{upper}*{lower}+{short}|{_BEFORE}{upper}+{lower}*{short}"
        rf"|{numbers}|{rest}|{_SPACES}"
    )


def _by_case(short: str, numbers: str) -> str:
    return _cased(f"[{_UPPER}]", f"[{_LOWER}]", short, numbers)


def _by_ascii_case(letters: str, short: str, numbers: str) -> str:
    """llama.cpp's: the case of ASCII letters alone."""
    return _cased(f"[{letters}&&[^a-z]]", f"[{letters}&&[^A-Z]]", short, numbers)


def _exaone(short: str) -> str:
    return (
        rf"{short}|{_BEFORE}(?:\p{{L}}\p{{M}}*(?: \p{{L}}\p{{M}}*)*)+|\p{{N}}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
    )


_DEEPSEEK3 = (
    rf"{_ASCII_PUNCT}[A-Za-z]+|[^\r\n\p{{L}}\p{{P}}\p{{S}}]?[\p{{L}}\p{{M}}]+"
    r"| ?[\p{P}\p{S}]+"
)
_TRIPLES = r"\p{N}{1,3}"
_HALVES = "|".join(rf"\s{{{2**k}}}(?!\S)" for k in range(9, 1, -1))
_DEEPSEEK_LETTERS = (
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-"
    "\u02af\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1"
    "\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-"
    "\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15"
    "\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d"
    "\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb"
    "\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d"
    "\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183"
    "\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b"
    "\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-"
    "\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb"
    "\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943"
)
_DEEPSEEK_PUNCT = "[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+"
_AFMOE_SCRIPTS = (
    "[\u4e00-\u9fff\u3400-\u4dbf\u8c48-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-"
    "\u2fdf\u0e40-\u0e7f\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff"
    "\uac00-\ud7af\u1100-\u11ff]+"
)
_EAST = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
_YOUTU_SCRIPTS = (
    "[\uac00-\ud7a3\u3131-\u318e]+|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b"
    "\uff0c\u3001-\u303f\ufe30-\ufe4f]+|[\u3105-\u312f]+|[\u4e00-\u9fa5\u3040-\u309f\u30a0-"
    "\u30ff]+"
)
_NO_PUNCT = r" ?[^(\s|" + ".,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"
_HAN, _NO_HAN = r"[\p{Han}]+|", r"&&[^\p{Han}]"
_LETTERS = r"\p{L}\p{M}"  # llama.cpp's reading of both cases in some

# Functions of `pretokenizers` that stand where an expression would take more than linear time.
ASCII_THREES = "ASCII digits by threes"
DECIMAL_THREES = "decimal digits by threes"
GLUED_THREES = "numbers by threes, what stands before with the first"
SPACES_AT_END = "spaces at the end"

# By the name of the set: the passes of the published tokenizer.
SETS: dict[str, tuple[str, ...]] = {
    "afmoe": (
        GLUED_THREES,
        _AFMOE_SCRIPTS,
        rf"{_DEEPSEEK3}[\r\n]*|{_SPACES}",
    ),
    "bailingmoe": (
        rf"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|{_WORD}|\p{{N}}|{_REST}"
        r"|\s*[\r\n]|\s+(?!\S)|\s+",
    ),
    "chameleon": (
        "<sentinel:[0-9]+>",
        "(?:IMGIMG)(?:[A-I]{1,4})Z",
        "[\t\n]|    |  ",
        r"\p{N}",
        r"[\p{P}!-/:-@\[-`{-~]",
        _GPT2,
    ),
    "deepseek3_llm": (_TRIPLES, _CJK, rf"{_DEEPSEEK3}[\r\n]*|{_SPACES}"),
    "deepseek_coder": (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _EAST, r"\p{N}"),
    "deepseek_llm": (
        r"[\r\n]",
        rf"\s?[{_DEEPSEEK_LETTERS}]+",
        rf"\s?{_DEEPSEEK_PUNCT}",
        SPACES_AT_END,
        _EAST,
        r"\p{N}+",
    ),
    "exaone_moe": (_exaone(_ANY_S),),
    "gpt4o": (_by_case(f"{_ANY_S}?", _TRIPLES),),
    "granite_emb_multi": (_by_ascii_case(r"\p{L}\p{M}", f"{_SHORT}?", _TRIPLES),),
    "jais2": (rf"{_SHORT}|{_WORD}|{_TRIPLES}|{_REST}|\s*[\r\n]+|{_HALVES}|\s{{1,2}}(?!\S)|\s",),
    "kimi_k2": (
        _HAN
        + _cased(f"[{_UPPER}{_NO_HAN}]", f"[{_LOWER}{_NO_HAN}]", f"{_ANY_S}?", _TRIPLES, _REST),
    ),
    "laguna": (r"[^\n]+|[\n]+", _ONE_BY_ONE),
    "minicpm5": (_TRIPLES, rf"{_SHORT}|{_WORD}|\p{{N}}+|{_REST}|{_SPACES}"),
    "poro": (_NO_PUNCT,),
    "seed_coder": (rf"{_SHORT}|{_WORD}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_SPACES}",),
    "spark2_5": (_TRIPLES, _CJK, rf"{_DEEPSEEK3}|[\r\n]|\s+(?!\S)|\s+", r"\p{N}"),
    "superbpe": (r"\p{N}+", ASCII_THREES),
    "tekken": (_by_case("", r"\p{N}"),),
    "tiny_aya": (DECIMAL_THREES, _by_case(f"{_ANY_S}?", _TRIPLES)),
    "ufakzeka": (rf"{_WORD}|\p{{N}}|{_REST}|{_SPACES}",),
    "viking": (_NO_PUNCT, r"\p{N}"),
    "youtu": (
        _YOUTU_SCRIPTS,
        _cased(f"[{_LETTERS}]", f"[{_LETTERS}]", f"{_SHORT}?", r"\p{N}"),
    ),
}
# llama.cpp's own readings of some.
LLAMA_CPP: dict[str, tuple[str, ...]] = {
    "gpt4o": (_by_ascii_case(r"\p{L}", f"{_SHORT}?", _TRIPLES),),
    "exaone_moe": (_exaone(_SHORT),),
    "kimi_k2": (
        "[\\p{Han}&&[^\u3007]]+|"
        rf"{_BEFORE}[\p{{L}}{_NO_HAN}]+{_SHORT}?|{_TRIPLES}|{_REST}|{_SPACES}",
    ),
    "tekken": (_by_ascii_case(r"\p{L}", "", r"\p{N}"),),
    "tiny_aya": (
        GLUED_THREES,
        _cased(f"[{_LETTERS}]", f"[{_LETTERS}]", f"{_SHORT}?", _TRIPLES),
    ),
}

NAMES: dict[str, str] = {
    **dict.fromkeys(("bailingmoe", "bailingmoe2", "llada-moe"), "bailingmoe"),
    **dict.fromkeys(("bloom", "gpt3-finnish", "poro-chat"), "poro"),
    **dict.fromkeys(("deepseek-v3", "hunyuan-dense", "hy_v4", "joyai-llm"), "deepseek3_llm"),
    **dict.fromkeys(("gpt-4o", "kanana2", "llama4", "minimax-m2", "talkie"), "gpt4o"),
    **dict.fromkeys(("cohere2moe", "tiny_aya"), "tiny_aya"),
    "afmoe": "afmoe",
    "chameleon": "chameleon",
    "deepseek-coder": "deepseek_coder",
    "deepseek-llm": "deepseek_llm",
    "exaone-moe": "exaone_moe",
    "granite-embed-multi-97m": "granite_emb_multi",
    "jais-2": "jais2",
    "kimi-k2": "kimi_k2",
    "laguna": "laguna",
    "minicpm5": "minicpm5",
    "seed-coder": "seed_coder",
    "spark2_5": "spark2_5",
    "superbpe": "superbpe",
    "tekken": "tekken",
    "ufakzeka": "ufakzeka",
    "viking": "viking",
    "youtu": "youtu",
}
ADD_BOS = ("chameleon", "tekken")
IGNORE_MERGES = ("granite-embed-multi-97m", "minicpm5", "tekken", "youtu")
