"""`python -m quant.simd.asm KERNEL [ISA]`: a kernel's machine code, and what its loops are made of.

KERNEL is a factory and its parameters: `stream:Q4_K:a8:1`, `panel:Q8_0:a16`, `floats:F16:many`, or
with its module `gguf_runtime.kernels.norm.rms_norm:…`. ISA is a name of `quant.simd.isa.TARGETS`,
of another architecture as `aarch64/neondot`; this CPU's best one unless said otherwise. Nothing is
run, so any of them can be read anywhere.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections import Counter
from typing import Any, NamedTuple

from quant.errors import QuantError

FACTORIES = {
    "stream": "quant.gemm_stream",
    "panel": "quant.gemm_panel",
    "floats": "quant.gemm_float",
    "quantize": "quant.activations",
    "pack_strip": "quant.packing_kernels",
}

_LABEL = re.compile(r"^(\.?L\w+):")
_JUMP = re.compile(r"^\s+(?:j\w+|b(?:\.\w+)?|cbn?z|tbn?z)\s.*?(\.?L\w+)\s*$")
_COMMENT = re.compile(r"\s*(?:#|//|;).*$")
_VECTOR = re.compile(r"%[xyz]mm\d|\b[qdv]\d+\b")
_STACK = re.compile(r"\(%rsp\b|\[sp\b")
# A frame pointer is the stack's too, but only where it is set: else a register like any other.
_FRAME = re.compile(r"(?:movq\s+%rsp, (%rbp)|mov\s+(x29), sp|add\s+(x29), sp)")


class Loop(NamedTuple):
    """One innermost loop: its instructions in order."""

    label: str
    lines: list[str]
    frame: str = ""  # the frame pointer, where there is one

    def vector(self) -> Counter[str]:
        """Vector instructions by mnemonic."""
        return Counter(line.split()[0] for line in self.lines if _VECTOR.search(line))

    def spills(self) -> int:
        """Vector registers stored to or read from the stack."""
        return sum(1 for x in self.lines if _VECTOR.search(x) and self._on_stack(x))

    def _on_stack(self, line: str) -> bool:
        framed = bool(self.frame) and re.search(rf"[(\[]{self.frame}\b", line) is not None
        return framed or _STACK.search(line) is not None

    def calls(self) -> int:
        """Calls, of which there should be none."""
        return sum(1 for line in self.lines if line.split()[0] in ("call", "callq", "bl", "blr"))


def inner_loops(assembly: str) -> list[Loop]:
    """Loops that hold no other loop, the one with most vector instructions first."""
    lines: list[str] = []
    labels: dict[str, int] = {}
    spans: list[tuple[int, int, str]] = []
    for raw in assembly.splitlines():
        line = _COMMENT.sub("", raw).rstrip()
        if label := _LABEL.match(line):
            labels[label[1]] = len(lines)
        elif line.startswith(("\t", " ")) and not line.lstrip().startswith("."):
            lines.append(line.strip())
            jump = _JUMP.match(line)
            if jump and jump[1] in labels:
                spans.append((labels[jump[1]], len(lines), jump[1]))
    inner = [
        s for s in spans if not any(o is not s and s[0] <= o[0] and o[1] <= s[1] for o in spans)
    ]
    found = _FRAME.search(assembly)
    frame = next(filter(None, found.groups())) if found else ""
    loops = [Loop(label, lines[start:end], frame) for start, end, label in inner]
    return sorted(loops, key=lambda loop: -loop.vector().total())


def kernel_of(text: str) -> Any:
    """The Python kernel that a text such as `stream:Q4_K:a8:1` names."""
    name, *params = text.split(":")
    module, _, factory = name.rpartition(".")
    module = module or FACTORIES.get(factory, "")
    if not module:
        raise QuantError(
            f"kernel {text!r} is not known",
            expected=f"one of {', '.join(FACTORIES)} with its parameters, as stream:Q4_K:a8:1",
        )
    values = [int(p) if p.lstrip("-").isdigit() else p for p in params]
    return getattr(importlib.import_module(module), factory)(*values)


def assembly(text: str, isa: str = "") -> str:
    """The assembly of a kernel; one process can do this for one instruction set only."""
    from quant import cpu
    from quant.compile import emit_assembly

    arch, _, name = isa.rpartition("/")
    return emit_assembly(kernel_of(text), "kernel", name or cpu.isa(), arch or None)


def summary(text: str) -> str:
    """What the inner loops of an assembly consist of, as lines of comment."""
    lines = []
    for loop in inner_loops(text):
        if kinds := loop.vector():
            counts = ", ".join(f"{n} {kind}" for kind, n in kinds.most_common())
            lines.append(
                f"# {loop.label}: {len(loop.lines)} instructions, {kinds.total()} vector: {counts}"
            )
            lines.append(f"#   {loop.spills()} stack accesses, {loop.calls()} calls")
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Write the assembly and its summary."""
    if not 1 <= len(arguments) <= 2:
        sys.stderr.write(__doc__ or "")
        return 2
    try:
        text = assembly(*arguments)
    except (QuantError, ImportError, AttributeError, TypeError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    sys.stdout.write(f"{text}\n{summary(text)}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
