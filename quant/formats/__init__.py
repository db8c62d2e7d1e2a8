"""One module per weight type: its layout in words, decode and encode, pack, integers.

Reached through `quant.types`: `types.get("Q4_K").format.decode(blocks)`.
"""
