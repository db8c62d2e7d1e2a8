"""Every weight type that a GGUF file may name: id, name and size of a block.

Sizes only, so that any file can be listed and checked, also with types that no kernel here can run;
what can be run stands in `quant.types`. Source: ggml.h and ggml-common.h of llama.cpp (September
2026); ids from 97 up and 36 are named as in ik_llama.cpp, whose block sizes are not all fixed per row.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FILE_TYPES", "GGML_TYPES", "UNSIZED", "GGMLType", "type_name"]


@dataclass(frozen=True, slots=True)
class GGMLType:
    """One row: `values` weights take `size_bytes` bytes."""

    id: int
    name: str
    values: int
    size_bytes: int

    @property
    def bits(self) -> float:
        """Bits per weight, scales included."""
        return 8 * self.size_bytes / self.values


_ROWS = (
    (0, "F32", 1, 4),
    (1, "F16", 1, 2),
    (2, "Q4_0", 32, 18),
    (3, "Q4_1", 32, 20),
    (6, "Q5_0", 32, 22),
    (7, "Q5_1", 32, 24),
    (8, "Q8_0", 32, 34),
    (9, "Q8_1", 32, 36),
    (10, "Q2_K", 256, 84),
    (11, "Q3_K", 256, 110),
    (12, "Q4_K", 256, 144),
    (13, "Q5_K", 256, 176),
    (14, "Q6_K", 256, 210),
    (15, "Q8_K", 256, 292),
    (16, "IQ2_XXS", 256, 66),
    (17, "IQ2_XS", 256, 74),
    (18, "IQ3_XXS", 256, 98),
    (19, "IQ1_S", 256, 50),
    (20, "IQ4_NL", 32, 18),
    (21, "IQ3_S", 256, 110),
    (22, "IQ2_S", 256, 82),
    (23, "IQ4_XS", 256, 136),
    (24, "I8", 1, 1),
    (25, "I16", 1, 2),
    (26, "I32", 1, 4),
    (27, "I64", 1, 8),
    (28, "F64", 1, 8),
    (29, "IQ1_M", 256, 56),
    (30, "BF16", 1, 2),
    (31, "Q4_0_4_4", 32, 18),
    (32, "Q4_0_4_8", 32, 18),
    (33, "Q4_0_8_8", 32, 18),
    (34, "TQ1_0", 256, 54),
    (35, "TQ2_0", 256, 66),
    (39, "MXFP4", 32, 17),
    (40, "NVFP4", 64, 36),
    (41, "Q1_0", 128, 18),
    (42, "Q2_0", 64, 18),
)

GGML_TYPES: dict[int, GGMLType] = {row[0]: GGMLType(*row) for row in _ROWS}

# Known by name alone: their size in a file is taken from where the next tensor starts.
UNSIZED: dict[int, str] = {
    4: "Q4_2",
    5: "Q4_3",
    36: "I2_S",
    37: "IQ4_NL_4_8",
    38: "IQ4_NL_8_8",
    133: "Q6_0",
    134: "IQ1_BN",
    135: "IQ2_BN",
    137: "IQ2_K",
    138: "IQ3_K",
    139: "IQ4_K",
    140: "IQ5_K",
    141: "IQ6_K",
    144: "IQ4_KS",
    145: "IQ2_KS",
    146: "IQ4_KSS",
    151: "Q8_KV",
    152: "IQ5_KS",
    153: "IQ2_KT",
    154: "IQ3_KT",
    155: "IQ4_KT",
    156: "IQ3_KS",
    157: "IQ2_KL",
    158: "IQ1_KT",
    202: "Q4_0_R8",
    206: "Q5_0_R4",
    208: "Q8_0_R8",
    210: "Q2_K_R4",
    211: "Q3_K_R4",
    212: "Q4_K_R4",
    213: "Q5_K_R4",
    214: "Q6_K_R4",
    216: "IQ2_XXS_R4",
    217: "IQ2_XS_R4",
    218: "IQ3_XXS_R4",
    219: "IQ1_S_R4",
    220: "IQ4_NL_R4",
    221: "IQ3_S_R4",
    222: "IQ2_S_R4",
    223: "IQ4_XS_R8",
    229: "IQ1_M_R4",
    230: "BF16_R16",
    233: "Q6_0_R4",
    335: "IQ2_BN_R4",
    337: "IQ2_K_R4",
    338: "IQ3_K_R4",
    339: "IQ4_K_R4",
    340: "IQ5_K_R4",
    344: "IQ4_KS_R4",
    352: "IQ5_KS_R4",
    398: "Q8_KV_R8",
    399: "Q8_K_R8",
}


def type_name(type_id: int) -> str:
    """The name of a type id, `type 77` for an id that nobody has named."""
    row = GGML_TYPES.get(type_id)
    return row.name if row else UNSIZED.get(type_id, f"type {type_id}")


# What `general.file_type` means: the recipe that most matrices of the file follow.
FILE_TYPES: dict[int, str] = {
    0: "F32",
    1: "F16",
    2: "Q4_0",
    3: "Q4_1",
    7: "Q8_0",
    8: "Q5_0",
    9: "Q5_1",
    10: "Q2_K",
    11: "Q3_K_S",
    12: "Q3_K_M",
    13: "Q3_K_L",
    14: "Q4_K_S",
    15: "Q4_K_M",
    16: "Q5_K_S",
    17: "Q5_K_M",
    18: "Q6_K",
    19: "IQ2_XXS",
    20: "IQ2_XS",
    21: "Q2_K_S",
    22: "IQ3_XS",
    23: "IQ3_XXS",
    24: "IQ1_S",
    25: "IQ4_NL",
    26: "IQ3_S",
    27: "IQ3_M",
    28: "IQ2_S",
    29: "IQ2_M",
    30: "IQ4_XS",
    31: "IQ1_M",
    32: "BF16",
    36: "TQ1_0",
    37: "TQ2_0",
    38: "MXFP4",
    39: "NVFP4",
    40: "Q1_0",
    41: "Q2_0",
}
