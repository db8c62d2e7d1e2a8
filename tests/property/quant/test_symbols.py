"""`quant.symbols`: the symbols of objects that LLVM wrote for every system."""

import pytest

from quant import QuantError
from quant.symbols import read_symbols


def test_symbols_reads_what_a_compiler_wrote():
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    text = """
    declare void @outside(i64)
    define void @offered(i64 %x) {
      call void @outside(i64 %x)
      call void @hidden(i64 %x)
      ret void
    }
    define internal void @hidden(i64 %x) noinline optnone {
      ret void
    }"""
    for triple in (
        "x86_64-unknown-linux-gnu",
        "aarch64-unknown-linux-gnu",
        "x86_64-apple-macosx11.0.0",
        "arm64-apple-macosx11.0.0",
        "x86_64-pc-windows-msvc",
    ):
        machine = llvm.Target.from_triple(triple).create_target_machine(
            reloc="pic", codemodel="small"
        )
        data = machine.emit_object(llvm.parse_assembly(text))

        found = read_symbols(data)

        assert found.undefined == ("outside",), triple
        assert "offered" in found.defined, triple
        assert "hidden" not in found.defined, triple


@pytest.mark.parametrize(
    "data", [b"", b"\x7fELF", b"MZ" + bytes(100), b"\x7fELF\2\1" + b"\xff" * 90]
)
def test_symbols_of_something_else_is_an_error(data):
    with pytest.raises(QuantError, match="object"):
        read_symbols(data)
