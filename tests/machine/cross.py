"""Run as `cross.py ISA ARCH FOLDER SUFFIX KERNEL...`: objects (.o) or assembly (.s), for any processor.

A process of its own per instruction set, as the compiler demands. Writes NAME.o or NAME.s, where
NAME is the kernel's text (as in `make asm`) with - for : and exports the symbol `kernel`.
"""

import sys
from pathlib import Path

from quant.asm import kernel_of
from quant.compile import compile_kernel, emit_assembly
from quant.symbols import read_symbols


def main(isa, arch, folder, suffix, *kernels):
    for text in kernels:
        path = Path(folder) / f"{text.replace(':', '-')}{suffix}"
        if suffix == ".s":
            path.write_text(emit_assembly(kernel_of(text), "kernel", isa, arch))
            continue
        data = compile_kernel(kernel_of(text), "kernel", isa, arch)
        assert not read_symbols(data).undefined, text
        path.write_bytes(data)


if __name__ == "__main__":
    main(*sys.argv[1:])
