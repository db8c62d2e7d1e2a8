"""What the machine code of a kernel depends on: its module's source, and all that this imports.

Import statements are found in the text, in functions too, and followed through the packages that
concern kernels: this one, and the one that the kernel's module belongs to. Nothing is imported for
it. Modules that are found by name while the program runs are not seen; those that compile, load or
check kernels (named `checks` or `..._checks`) do not decide what a kernel is and are left out.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import sys
from collections.abc import Iterator
from functools import cache

from quant.errors import QuantError

_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+(\.*[\w.]*)[ \t]+import[ \t]+(\([^)]*\)|[^\n#;]+)"
    r"|import[ \t]+([\w.]+(?:[ \t]*,[ \t]*[\w.]+)*))",
    re.MULTILINE,
)
_TYPES_ONLY = re.compile(r"^if TYPE_CHECKING:\n(?:(?:[ \t].*)?\n)*", re.MULTILINE)
_COMMENT = re.compile(r"#[^\n]*")
_NAME = re.compile(r"(\w+)(?:\s+as\s+\w+)?")

_OWN = __name__.partition(".")[0]
_OWN_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_MACHINERY = f"{_OWN}.jit"
_WORDS = f"{_OWN}.simd"  # in every key as a folder


@cache
def digest(module: str) -> str:
    """sha256 over the sources of a module and of all modules that it imports, names included."""
    found = _closure(module)
    facts = "\n".join(f"{name}={_read(found[name])[0]}" for name in sorted(found))
    return hashlib.sha256(facts.encode()).hexdigest()


def weight(module: str) -> int:
    """Characters of the same sources: about how long a kernel of the module takes to compile."""
    return sum(len(_read(path)[1]) for path in _closure(module).values())


@cache
def _closure(module: str) -> dict[str, str]:
    """Path of a module and of all modules that it imports, by name."""
    path = path_of(module)
    root = _root(module, path)
    found = {module: path}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        new = {n: p for n, p in _imports(name, found[name], root).items() if n not in found}
        found.update(new)
        waiting.extend(new)
    return found


@cache
def folder_digest(package: str) -> str:
    """sha256 over every Python file below a package, names included."""
    folder = os.path.dirname(path_of(package))
    facts = hashlib.sha256()
    for base, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(files):
            if name.endswith(".py"):
                path = os.path.join(base, name)
                facts.update(f"{path[len(folder) :]}={_read(path)[0]}\n".encode())
    return facts.hexdigest()


def forget() -> None:
    """Read every source again: for tests, which edit them."""
    for known in (digest, folder_digest, path_of, _closure, _imports, _place, _read):
        known.cache_clear()


@cache
def path_of(module: str) -> str:
    """Path of a module's source, without importing the module."""
    path = getattr(sys.modules.get(module), "__file__", None)
    if path is None:
        spec = importlib.util.find_spec(module)
        path = spec.origin if spec else None
    if not path or not path.endswith(".py"):
        raise QuantError(f"the kernel module {module} has no source file", got=path)
    return str(path)


def _root(module: str, path: str) -> str:
    """The folder that a module's dotted name starts from."""
    for _ in range(module.count(".") + (2 if _is_package(path) else 1)):
        path = os.path.dirname(path)
    return path


def _is_package(path: str) -> bool:
    return os.path.basename(path) == "__init__.py"


@cache
def _imports(module: str, path: str, root: str) -> dict[str, str]:
    """Modules that a source imports, with their paths: those of our own and of its own package."""
    package = module if _is_package(path) else module.rpartition(".")[0]
    # Where packages are installed, numpy and all others lie beside ours: they have versions.
    ours = {_OWN, module.partition(".")[0]}
    found = {}
    text = _read(path)[1]
    # What an __init__ imports lazily it names for the type checker.
    text = text if _is_package(path) else _TYPES_ONLY.sub("", text)
    for base, names in _statements(text, package):
        for name in names if base.partition(".")[0] in ours else ():
            # A name in a package is a module of it, or what its __init__ holds.
            for candidate in (f"{base}.{name}", base):
                place = _place(candidate, root)
                if place is not None:
                    found[candidate] = place
                    break
    return found


def _statements(text: str, package: str) -> Iterator[tuple[str, list[str]]]:
    """(module, names taken from it) of the import statements in a source."""
    for source, names, plain in _IMPORT.findall(text):
        if plain:
            yield from ((n.strip(), [""]) for n in plain.split(","))
        elif source.startswith("."):
            yield importlib.util.resolve_name(source, package), _names(names)
        else:
            yield source, _names(names)


def _names(text: str) -> list[str]:
    return _NAME.findall(_COMMENT.sub("", text))


@cache
def _place(module: str, root: str) -> str | None:
    """Path of a source that belongs into a digest; of our own package beside this file."""
    first, last = module.partition(".")[0], module.rpartition(".")[2]
    if module in (_MACHINERY, _WORDS) or module.startswith(f"{_WORDS}."):
        return None
    if last == "checks" or last.endswith("_checks"):
        return None
    base = os.path.join(_OWN_ROOT if first == _OWN else root, *module.split("."))
    for path in (f"{base}.py", os.path.join(base, "__init__.py")):
        if os.path.isfile(path):
            return path
    return None


@cache
def _read(path: str) -> tuple[str, str]:
    """(sha256, text) of a source."""
    with open(path, "rb") as file:
        data = file.read()
    return hashlib.sha256(data).hexdigest(), data.decode("utf-8", "replace")
