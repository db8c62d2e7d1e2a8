"""`python -m quant.asm [--also PACKAGE] KERNEL [ISA]`: a kernel's machine code, and what it is made of.

KERNEL is a factory and its parameters: `stream:Q4_K:a8:one`, `panel:Q8_0:a16`, `floats:F16:many`;
with its module in front where two have the same name. ISA is a name of `quant.simd.isa.TARGETS`,
with its architecture in front where both have it (`aarch64/generic`); this CPU's best one unless
said otherwise. Nothing is run, so any of them can be read anywhere. `--also` names a package whose
kernels are known by their short names, too. The summary comes last, each line a comment.
"""

from __future__ import annotations

import ast
import difflib
import importlib
import importlib.util
import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from quant.errors import QuantError

_LABEL = re.compile(r"^(\.?L\w+):")
_JUMP = re.compile(r"^\s+(?:j\w+|b(?:\.\w+)?|cbn?z|tbn?z)\s.*?(\.?L\w+)\s*$")
# Comments, and how an instruction is encoded where two ways exist: `{vex} vpdpbusd`.
_COMMENT = re.compile(r"\s*(?:#|//|;).*$|\{vex\}\s+")
_VECTOR = re.compile(r"(?:%[xyz]mm|\b[qdv])(\d+)\b")
_STACK = re.compile(r"\(%rsp\b|\[sp\b")
_CALLS = ("call", "callq", "bl", "blr")
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
        return sum(1 for line in self.lines if line.split()[0] in _CALLS)

    def registers(self) -> int:
        """Vector registers in use."""
        return len({n for line in self.lines for n in _VECTOR.findall(line)})


def whole(assembly: str) -> Loop:
    """All instructions of an assembly."""
    lines = [_COMMENT.sub("", raw).strip() for raw in assembly.splitlines() if raw[:1] in "\t "]
    lines = [line for line in lines if line and not line.startswith(".")]
    return Loop("all", lines, _frame_of(assembly))


def _frame_of(assembly: str) -> str:
    found = _FRAME.search(assembly)
    return next(filter(None, found.groups())) if found else ""


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
    frame = _frame_of(assembly)
    loops = [Loop(label, lines[start:end], frame) for start, end, label in inner]
    return sorted(loops, key=lambda loop: -loop.vector().total())


# ---- names -------------------------------------------------------------------------------------


class Name(NamedTuple):
    """A factory of kernels, read from a source without importing it."""

    module: str
    factory: str
    params: tuple[str, ...]

    def __str__(self) -> str:
        return ":".join((self.factory, *(p.upper() for p in self.params)))


def kernels_in(*packages: str) -> list[Name]:
    """All factories that `@kernel` marks in the modules of these packages."""
    found = []
    for package in packages:
        spec = importlib.util.find_spec(package)
        if spec is None or not spec.submodule_search_locations:
            raise QuantError(f"there is no package {package}")
        for folder in spec.submodule_search_locations:
            for path in sorted(Path(folder).glob("*.py")):
                found += _kernels(f"{package}.{path.stem}", path)
    return found


def _kernels(module: str, path: Path) -> list[Name]:
    return [
        Name(module, node.name, tuple(a.arg for a in node.args.args))
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef) and any(map(_is_kernel, node.decorator_list))
    ]


def _is_kernel(decorator: ast.expr) -> bool:
    word = decorator.func if isinstance(decorator, ast.Call) else decorator
    return isinstance(word, ast.Name) and word.id == "kernel"


def kernel_of(text: str, packages: Sequence[str] = ("quant",)) -> Any:
    """The Python kernel that a text such as `stream:Q4_K:a8:one` names."""
    path, *given = text.split(":")
    module, _, factory = path.rpartition(".")
    known = _kernels_of(module) if module else kernels_in(*packages)
    names = [n for n in known if n.factory == factory]
    if not names:
        close = difflib.get_close_matches(factory, [n.factory for n in known], n=1)
        hint = f"did you mean {close[0]}?" if close else None
        shown = "  ".join(sorted(map(str, known))) or "a module with kernels"
        raise QuantError(f"kernel {text!r} is not known", expected=shown, hint=hint)
    name = names[0]
    if len(given) != len(name.params):
        got = f"{len(given)} of {len(name.params)} parameters"
        raise QuantError(f"kernel {text!r} is not complete", expected=str(name), got=got)
    values = [int(p) if p.lstrip("-").isdigit() else p for p in given]
    made = getattr(importlib.import_module(name.module), factory)
    try:
        return made(*values)
    except QuantError:  # which names what there is
        raise
    except (KeyError, TypeError, ValueError, IndexError) as error:
        docs = (made.__doc__ or "").strip().split("\n")[0]
        what = f"kernel {name} has no variant {text!r}: {type(error).__name__} {error}"
        raise QuantError(what, expected=docs or str(name)) from error


def _kernels_of(module: str) -> list[Name]:
    try:
        spec = importlib.util.find_spec(module)
    except ImportError:
        spec = None
    if spec is None or not spec.origin:
        raise QuantError(f"there is no module {module}")
    return _kernels(module, Path(spec.origin))


def target_of(isa: str) -> tuple[str, str | None]:
    """(instruction set, architecture) of `avx2`, `neondot` or `aarch64/generic`; "" is this CPU's."""
    from quant import cpu
    from quant.simd.isa import TARGETS

    if not isa:
        return cpu.isa(), None
    arch, _, name = isa.rpartition("/")
    fits = [(i, a) for i, a in TARGETS if i == name and arch in ("", a)]
    own = {"x86": "x86_64", "arm": "aarch64"}.get(cpu.family(), "")
    here = [x for x in fits if x[1] == own]
    if not fits:
        names = ", ".join(sorted(f"{a}/{i}" for i, a in TARGETS))
        raise QuantError(f"instruction set {isa!r} is not known", expected=f"one of {names}")
    return (here or fits)[0]


# ---- in words ----------------------------------------------------------------------------------


def assembly(text: str, isa: str = "", packages: Sequence[str] = ("quant",)) -> str:
    """The assembly of a kernel; one process can do this for one instruction set only."""
    from quant.compile import emit_assembly

    name, arch = target_of(isa)
    return emit_assembly(kernel_of(text, packages), "kernel", name, arch)


def summary(text: str) -> str:
    """What the assembly and its inner loops consist of, as lines of comment."""
    lines = []
    for loop in inner_loops(text):
        if kinds := loop.vector():
            counts = ", ".join(f"{n} {kind}" for kind, n in kinds.most_common())
            lines.append(
                f"# {loop.label}: {len(loop.lines)} instructions, {kinds.total()} vector: {counts}"
            )
            lines.append(
                f"#   {loop.registers()} vector registers, {loop.spills()} stack accesses,"
                f" {loop.calls()} calls"
            )
    both = whole(text)
    first = (
        f"# all: {len(both.lines):,} instructions, {both.vector().total():,} vector;"
        f" {both.registers()} vector registers, {both.spills()} stack accesses of vectors,"
        f" {both.calls()} calls; {len(lines) // 2} inner loops with vectors, the largest first"
    )
    return "\n".join([first, *lines])


def main(arguments: list[str]) -> int:
    """Write the assembly and its summary."""
    packages = ["quant"]
    while arguments[:1] == ["--also"] and len(arguments) > 1:
        packages.append(arguments[1])
        arguments = arguments[2:]
    try:
        if not 1 <= len(arguments) <= 2 or arguments[0].startswith("-"):
            known = "\n  ".join(sorted(map(str, kernels_in(*packages))))
            sys.stderr.write(f"{__doc__ or ''}\nkernels:\n  {known}\n")
            return 2
        text = assembly(arguments[0], (arguments[1:] or [""])[0], packages)
    except QuantError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    sys.stdout.write(f"{text}\n{summary(text)}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
