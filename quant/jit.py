"""Kernels on demand: `@kernel` factory -> Spec -> object in the cache -> address.

A factory is a function of strings and ints that returns a kernel, a function
`(args: int, task: int, thread: int) -> None` written in the vocabulary of `quant.simd`:

    @kernel(check="check_matmul")
    def matmul(type_name: str, columns: int) -> KernelFn: ...

    k = load([matmul.spec("Q4_K", 8)], notice=tell)
    address = k[matmul.spec("Q4_K", 8)]     # k.isa says which instruction set it became

`load` finds objects in the cache and links them; what is missing is compiled in worker processes.
The cache's key covers the sources of a kernel's module and of all that it imports (`sources`).
Nothing imports numba in this process, and llvmlite only where `image` cannot load an object.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import threading
from collections.abc import Callable, Iterable
from functools import cache
from typing import TYPE_CHECKING, NamedTuple, overload

from quant import cpu, objects, sources
from quant.errors import QuantError

if TYPE_CHECKING:
    from quant.compile import KernelFn

Progress = Callable[[int, int, str], None]  # done, of how many, name of the kernel
Notice = objects.Notice  # code, message

# What every kernel depends on, beside the vocabulary, its own module and what that imports.
_COMMON = ("quant.compile", "quant.symbols")


class Spec(NamedTuple):
    """A kernel to be: which factory, called with what."""

    module: str
    factory: str
    params: tuple[str | int, ...]
    check: str = ""

    @property
    def symbol(self) -> str:
        """A C name that no other kernel has."""
        words = "_".join(str(p) for p in (self.factory, *self.params)).lower()
        safe = "".join(c if c.isascii() and c.isalnum() else "_" for c in words)
        identity = repr((self.module, self.factory, self.params)).encode()
        return f"{safe}_{hashlib.sha256(identity).hexdigest()[:8]}"


class Factory:
    """What `@kernel` makes of a factory: still callable, and a source of specs."""

    def __init__(self, function: Callable[..., KernelFn], check: str = "") -> None:
        self.function = function
        self.check = check
        self.__name__ = function.__name__
        self.__doc__ = function.__doc__

    def __call__(self, *params: str | int) -> KernelFn:
        """The kernel as a Python function, to be compiled."""
        return self.function(*params)

    def spec(self, *params: str | int) -> Spec:
        """The kernel for these parameters, to be loaded."""
        module = self.function.__module__
        if module == "__main__":
            raise QuantError("kernels must stand in a module that a worker process can import")
        return Spec(module, self.__name__, params, self.check)


@overload
def kernel(function: Callable[..., KernelFn], /) -> Factory: ...
@overload
def kernel(*, check: str = "") -> Callable[..., Factory]: ...
def kernel(
    function: Callable[..., KernelFn] | None = None, /, *, check: str = ""
) -> Factory | Callable[..., Factory]:
    """Mark a factory of kernels.

    Args:
        function: the factory, when the decorator stands without parentheses.
        check: name of a function in the factory's module, or its full dotted name; called as
            `check(run, isa, *params)` with the fresh kernel before it is published; it raises, or
            returns what is wrong, unless the kernel's bits are those of its reference.
    """
    if function is not None:
        return Factory(function)
    return lambda f: Factory(f, check)


class Kernels(dict[Spec, int]):
    """Addresses by spec, and the instruction set that they were compiled for."""

    def __init__(self, isa: str) -> None:
        super().__init__()
        self.isa = isa


_lock = threading.RLock()
_loaded: dict[tuple[Spec, str], int] = {}
_lowered: dict[str, str] = {}  # instruction set whose kernels could not be made -> the next lower
_stores: dict[str | None, objects.Store] = {}


def _new_lock() -> None:
    """In a forked child: a thread of the parent may have held the lock, and does not exist here."""
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_new_lock)


def load(
    specs: Iterable[Spec],
    isa: str | None = None,
    *,
    progress: Progress | None = None,
    notice: Notice | None = None,
    fallback: bool = True,
) -> Kernels:
    """Addresses of kernels, compiled first where the cache has none.

    Args:
        specs: what is wanted; twice the same is once.
        isa: an instruction set of `cpu.supported()`; the best one unless said otherwise.
        progress: called as compiling goes on; not called when everything was there.
        notice: called with (code, message) when something is slower than it should be.
        fallback: take the next lower instruction set for all of them when one cannot be made.

    Raises:
        QuantError: a kernel cannot be compiled, or not run here.
    """
    wanted = list(dict.fromkeys(specs))
    tell = notice if notice is not None else _log
    name = isa or cpu.isa()
    with _lock:
        while True:
            name = _lowered.get(name, name) if fallback else name
            try:
                _complete([s for s in wanted if (s, name) not in _loaded], name, progress, tell)
            except DiedError as died:
                lower = cpu.lower(name)
                if isinstance(died, MissingError) and lower not in cpu.exact():
                    raise QuantError(str(died), hint=died.detail) from None
                if not fallback or lower is None:
                    raise QuantError(f"{name}: {died}", hint=died.detail or None) from died
                tell("isa-lowered", f"{name}: {died}; using {lower}, which is slower")
                _lowered[name] = lower
                continue
            break
        return _kernels(wanted, name)


def ready(specs: Iterable[Spec], isa: str | None = None) -> Kernels | None:
    """Addresses of kernels that the cache holds; None where one would have to be compiled.

    Raises:
        QuantError: a kernel cannot be run here.
    """
    wanted = list(dict.fromkeys(specs))
    name = _lowered.get(isa or cpu.isa(), isa or cpu.isa())
    with _lock:
        missing = [s for s in wanted if (s, name) not in _loaded]
        found = _cached(missing, name, _stores.get(objects.default_base()) or _silentshared_store())
        if len(found) < len(missing) or not all(found.values()):
            return None
        _link(found, name)
        return _kernels(wanted, name)


class DiedError(Exception):
    """A kernel cannot be had for this instruction set: its compiler died, or its bits are wrong."""

    def __init__(self, what: str, detail: str = "") -> None:
        super().__init__(what)
        self.detail = detail


class MissingError(DiedError):
    """A kernel is not in the cache, and there is no compiler."""

    def __init__(self) -> None:
        super().__init__(
            "kernels are not compiled, and numba, which compiles them, is not installed",
            "pip install numba, or bring them from another machine: see warmup --target, --import",
        )


def has_compiler() -> bool:
    """Whether numba and llvmlite are installed; neither is imported."""
    try:
        return all(importlib.util.find_spec(name) is not None for name in ("numba", "llvmlite"))
    except (ImportError, ValueError):
        return False


def _complete(specs: list[Spec], isa: str, progress: Progress | None, notice: Notice) -> None:
    store = shared_store(notice)
    found = _cached(specs, isa, store)
    for s, data in found.items():
        if data == b"":
            raise DiedError(f"{s.symbol} could not be made before")
    need = [s for s in specs if s not in found]
    if need and not has_compiler():
        raise MissingError
    if need:
        from quant.build import build

        def publish(s: Spec, data: bytes) -> None:
            store.put(file_name(s, isa), object_key(s, isa), data)
            found[s] = data

        # The longest first: a worker that begins with it at the end keeps all others waiting.
        need.sort(key=lambda s: -sources.weight(s.module))
        build(need, isa, publish, progress)
    _link(found, isa)


def _cached(specs: list[Spec], isa: str, store: objects.Store) -> dict[Spec, bytes]:
    """Objects of the cache; an empty one is known not to build."""
    found = {s: store.get(file_name(s, isa), object_key(s, isa)) for s in specs}
    return {s: data for s, data in found.items() if data is not None}


def _link(found: dict[Spec, bytes], isa: str) -> None:
    if found:
        from quant.link import link

        addresses = link({s.symbol: data for s, data in found.items()})
        _loaded.update({(s, isa): addresses[s.symbol] for s in found})


def _kernels(specs: list[Spec], isa: str) -> Kernels:
    found = Kernels(isa)
    found.update({s: _loaded[s, isa] for s in specs})
    return found


def file_name(spec: Spec, isa: str) -> str:
    """The name of a kernel's object in the cache, to which its key is added."""
    return f"{spec.symbol}.{isa}"


def object_key(spec: Spec, isa: str) -> bytes:
    """sha256 over everything that the machine code of a kernel depends on."""
    facts = [_environment(), isa, *_source_facts(spec)]
    return hashlib.sha256("\n".join(facts).encode()).digest()


def source_key(spec: Spec, isa: str) -> bytes:
    """The same without compiler and system: what two machines with this program share."""
    return hashlib.sha256("\n".join([isa, *_source_facts(spec)]).encode()).digest()


def _source_facts(spec: Spec) -> list[str]:
    names = (spec.module, *_COMMON)
    facts = [repr(spec.params), sources.folder_digest("quant.simd")]
    return facts + [f"{name}={sources.digest(name)}" for name in names]


@cache
def _environment() -> str:
    return objects.environment()


def shared_store(notice: Notice) -> objects.Store:
    """The cache of this process."""
    base = objects.default_base()
    if base not in _stores:
        _stores[base] = objects.Store(base, notice)
    return _stores[base]


def _silentshared_store() -> objects.Store:
    """A store to read: whoever builds first decides who hears of what is wrong with the cache."""
    return objects.Store(objects.default_base(), lambda code, message: None)


def _log(code: str, message: str) -> None:
    import logging

    logging.getLogger("quant").warning("%s: %s", code, message)


if __name__ == "__main__":
    from quant.worker import serve

    serve()
