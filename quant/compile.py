"""Kernel (a Python function) -> Numba -> LLVM -> one relocatable object with one C symbol.

The one module that leans on Numba's private parts (`compile_extra` flags, `library._final_module`,
`library._linking_libraries`): the minor version of Numba is pinned for its sake. Numba types and
lowers the function; its own code generation is skipped, the module is optimised here for the
target's fixed feature list, and everything but the symbol is internal. Imports numba and llvmlite
when called.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

from quant.errors import QuantError
from quant.simd.isa import TARGETS, Target

KernelFn = Callable[[int, int, int], None]  # (args, task, thread), to be compiled


def machine_arch() -> str:
    """LLVM's name of this machine's architecture."""
    m = platform.machine().lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(m, m)


def triple_for(arch: str) -> str:
    """Target triple of this operating system on `arch`."""
    if sys.platform == "darwin":
        return f"{'arm64' if arch == 'aarch64' else arch}-apple-macosx11.0.0"
    if sys.platform == "win32":
        return f"{arch}-pc-windows-msvc"
    return f"{arch}-unknown-linux-gnu"


def target(isa: str, arch: str | None = None) -> Target:
    """The target row of an instruction set (of this architecture unless said otherwise)."""
    arch = arch or machine_arch()
    t = TARGETS.get((isa, arch))
    if t is None:
        known = sorted(i for i, a in TARGETS if a == arch)
        raise QuantError(f"no kernels for {isa} on {arch}; there are {', '.join(known) or 'none'}")
    return t


@cache
def _bridge(t: Target) -> Any:
    """The words of a target as Numba intrinsics."""
    from quant.simd.bridge import Bridge

    return Bridge(t.words_class())


@cache
def _target_machine(t: Target, triple: str) -> Any:
    """LLVM's code generator for a target."""
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    kind = llvm.Target.from_triple(triple)
    return kind.create_target_machine(
        cpu=t.cpu, features=t.features, opt=3, reloc="pic", codemodel="small"
    )


def _lower(fn: KernelFn, symbol: str, t: Target, triple: str) -> Any:
    """Numba's typed and lowered module with a plain C wrapper around the kernel."""
    import llvmlite.binding as llvm
    from numba.core import compiler, types
    from numba.core.compiler_lock import global_compiler_lock
    from numba.core.registry import cpu_target

    flags = compiler.Flags()
    flags.no_compile = True
    flags.no_cpython_wrapper = True
    flags.no_cfunc_wrapper = True
    flags.error_model = "numpy"  # no branches for division by zero
    flags.nrt = False
    flags.boundscheck = False
    kernel = _bridge(t).prepare(fn)
    with global_compiler_lock:
        result = compiler.compile_extra(
            cpu_target.typing_context,
            cpu_target.target_context,
            kernel,
            (types.int64,) * 3,
            types.void,
            flags,
            {},
        )
        library = result.library
        for part in library._linking_libraries:  # range() and the kernel's own helpers
            library._final_module.link_in(part._get_module_for_linking(), preserve=True)
        module = llvm.parse_assembly(str(library._final_module))
    for g in [*module.functions, *module.global_variables]:
        if not g.is_declaration:
            g.linkage = "internal"
    inner = result.fndesc.llvm_func_name
    tune = f' "tune-cpu"="{t.tune}"' if t.tune else ""
    wrap = llvm.parse_assembly(f"""
target triple = "{module.triple}"
target datalayout = "{module.data_layout}"
declare i32 @"{inner}"(ptr, ptr, i64, i64, i64)
define void @{symbol}(i64 %a, i64 %b, i64 %c){tune} {{
  %r = alloca ptr
  %e = alloca ptr
  %s = call i32 @"{inner}"(ptr %r, ptr %e, i64 %a, i64 %b, i64 %c)
  ret void
}}""")
    module.get_function(inner).linkage = "external"
    module.link_in(wrap)
    module.get_function(inner).linkage = "internal"
    module.get_function(inner).add_function_attribute("alwaysinline")
    return module


def _optimise(module: Any, tm: Any) -> None:
    """LLVM's passes over a module, in place."""
    import llvmlite.binding as llvm

    module.triple, module.data_layout = tm.triple, str(tm.target_data)
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    # The kernels are in the wanted shape already: unrolling and vectorising them again only spills.
    options.loop_vectorization = options.slp_vectorization = options.loop_unrolling = False
    builder = llvm.create_pass_builder(tm, options)
    builder.getModulePassManager().run(module, builder)
    module.verify()


def _module(
    fn: KernelFn, symbol: str, isa: str, arch: str | None, triple: str | None
) -> tuple[Any, Any]:
    """(optimised module, code generator) of a kernel."""
    t = target(isa, arch)
    tm = _target_machine(t, triple or triple_for(t.arch))
    module = _lower(fn, symbol, t, tm.triple)
    _optimise(module, tm)
    return module, tm


def compile_kernel(
    fn: KernelFn, symbol: str, isa: str, arch: str | None = None, triple: str | None = None
) -> bytes:
    """Compile a kernel function for an instruction set.

    Args:
        fn: `(args, task, thread) -> None` over addresses, `v` and macros.
        symbol: the C symbol that the object exports.
        isa: a name of `quant.simd.isa.TARGETS`; arch and triple default to this machine's.

    Returns:
        A relocatable object. One process can compile for one instruction set only: Numba's type
        registry is global.
    """
    module, tm = _module(fn, symbol, isa, arch, triple)
    data: bytes = tm.emit_object(module)
    return data


def emit_assembly(
    fn: KernelFn, symbol: str, isa: str, arch: str | None = None, triple: str | None = None
) -> str:
    """The assembly of the same object, to read."""
    module, tm = _module(fn, symbol, isa, arch, triple)
    text: str = tm.emit_assembly(module)
    return text
