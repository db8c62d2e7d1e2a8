"""Objects -> addresses: by `quant.image`, or by llvmlite for what that does not load.

Numba, most of the start time, is not imported. Nothing is ever unloaded: the code may be running
in a worker thread until the process ends.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import Any

from quant import image
from quant.errors import QuantError

_engines: list[Any] = []


def link(objects: Mapping[str, bytes]) -> dict[str, int]:
    """Load objects that were checked for undefined symbols; the address of each symbol."""
    if not objects:
        return {}
    try:
        return image.place(objects) or _link(objects)
    except OSError as error:
        raise QuantError(
            "this system forbids programs to make executable memory",
            hint="kernels cannot run here; GGUF_RUNTIME_EXACT=1 runs without them",
        ) from error


def _link(objects: Mapping[str, bytes]) -> dict[str, int]:
    import llvmlite.binding as llvm

    if not _engines:
        llvm.check_jit_execution()
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
    # Neither the target machine nor the empty module generates any code: objects are linked as is.
    machine = llvm.Target.from_default_triple().create_target_machine(
        reloc="pic", codemodel="small"
    )
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    for data in objects.values():
        engine.add_object_file(llvm.ObjectFileRef.from_data(data))
    engine.finalize_object()
    _engines.append(engine)
    return {symbol: engine.get_function_address(symbol) for symbol in objects}


def callable_at(address: int) -> Callable[[int, int, int], None]:
    """A kernel as a Python function that lets go of the GIL while it runs."""
    kind: Any = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
    call: Callable[[int, int, int], None] = kind(address)
    return call
