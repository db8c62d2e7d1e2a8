"""Objects in memory without LLVM's linker: the same results, nothing that is not understood."""

import ctypes
import platform
import random
import subprocess
import sys

import pytest

from quant import QuantError, image, link

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="objects of x86-64 Linux"
)

# A table of constants, a switch that becomes a table of jumps, and a function of its own.
TEXT = """
@table = internal constant [8 x i64] [i64 3, i64 1, i64 4, i64 1, i64 5, i64 9, i64 2, i64 6]
@floats = internal constant [2 x double] [double 0.5, double 3.25]

define internal i64 @inner(i64 %i) noinline {{
  %p = getelementptr [8 x i64], ptr @table, i64 0, i64 %i
  %x = load i64, ptr %p
  ret i64 %x
}}

define void @{name}(i64 %a, i64 %task, i64 %thread) {{
  %out = inttoptr i64 %a to ptr
  %x = call i64 @inner(i64 %task)
  switch i64 %thread, label %other [
    i64 0, label %zero
    i64 1, label %one
    i64 2, label %two
    i64 3, label %three
    i64 4, label %four
  ]
zero:
  store i64 %x, ptr %out
  ret void
one:
  %one.x = add i64 %x, {k}
  store i64 %one.x, ptr %out
  ret void
two:
  %two.x = mul i64 %x, 100
  store i64 %two.x, ptr %out
  ret void
three:
  %p = getelementptr [2 x double], ptr @floats, i64 0, i64 %task
  %d = load double, ptr %p
  %w = fptosi double %d to i64
  store i64 %w, ptr %out
  ret void
four:
  store i64 -7, ptr %out
  ret void
other:
  store i64 %thread, ptr %out
  ret void
}}
"""
WRITTEN = """
@count = internal global i64 5
define void @{name}(i64 %a, i64 %task, i64 %thread) {{
  %x = load i64, ptr @count
  %y = add i64 %x, 1
  store i64 %y, ptr @count
  %out = inttoptr i64 %a to ptr
  store i64 %y, ptr %out
  ret void
}}
"""
OUTSIDE = """
declare i64 @random()
define void @{name}(i64 %a, i64 %task, i64 %thread) {{
  %x = call i64 @random()
  ret void
}}
"""


def compiled(text, name, k=10, triple=None):
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple(triple) if triple else llvm.Target.from_default_triple()
    machine = target.create_target_machine(reloc="pic", codemodel="small", opt=2)
    return machine.emit_object(llvm.parse_assembly(text.format(name=name, k=k)))


def results(address):
    word = ctypes.c_int64(0)
    run = link.callable_at(address)
    found = []
    for task, thread in [(t, n) for t in range(8) for n in (0, 1, 2, 4, 5)] + [(0, 3), (1, 3)]:
        run(ctypes.addressof(word), task, thread)
        found.append(word.value)
    return found


def test_code_finds_its_constants_and_functions():
    objects = {f"k{k}": compiled(TEXT, f"k{k}", k) for k in (10, 20)}

    places = image.place(objects)

    digits = [3, 1, 4, 1, 5, 9, 2, 6]
    for k, name in ((10, "k10"), (20, "k20")):
        expected = [y for x in digits for y in (x, x + k, 100 * x, -7, 5)] + [0, 3]
        assert results(places[name]) == expected


def test_llvm_loads_what_is_written_to():
    objects = {"counts": compiled(WRITTEN, "counts")}

    assert image.place(objects) is None
    assert results(link.link(objects)["counts"])[:3] == [6, 7, 8]


@pytest.mark.parametrize("triple", ["aarch64-unknown-linux-gnu", "x86_64-apple-macosx11.0.0"])
def test_objects_of_other_systems_are_left_alone(triple):
    assert image.place({"f": compiled(TEXT, "f", triple=triple)}) is None


def test_a_symbol_from_outside_is_not_taken_for_an_address():
    assert image.place({"f": compiled(OUTSIDE, "f")}) is None


def test_an_object_without_the_symbol_is_left_alone():
    assert image.place({"g": compiled(TEXT, "f")}) is None


def test_damaged_objects_are_left_alone_or_loaded_but_never_crash_the_reader():
    data, chance = compiled(TEXT, "f"), random.Random(0)
    for n in range(0, len(data), 7):
        assert image.place({"f": data[:n]}) is None
    for _ in range(500):
        broken = bytearray(data)
        for _ in range(3):
            broken[chance.randrange(len(broken))] = chance.randrange(256)
        image.place({"f": bytes(broken)})


@pytest.mark.parametrize("far", [2**40, 2**63 - 1, 2**63, 2**64 - 1])
def test_a_section_table_that_is_said_to_be_far_away_is_left_alone(far):
    broken = bytearray(compiled(TEXT, "f"))
    broken[40:48] = far.to_bytes(8, "little")

    assert image.place({"f": bytes(broken)}) is None


def test_code_cannot_be_written_to_and_constants_cannot_be_run():
    at = image.place({"f": compiled(TEXT, "f")})["f"]

    with open("/proc/self/maps") as file:
        rows = [line.split() for line in file]
    areas = [(*(int(x, 16) for x in r[0].split("-")), r[1]) for r in rows]
    (k,) = [i for i, (low, high, _) in enumerate(areas) if low <= at < high]
    assert areas[k][2] == "r-xp"
    assert areas[k - 1][1:] == (areas[k][0], "r--p")


def test_a_system_that_forbids_executable_memory_is_an_error_of_ours(monkeypatch):
    def refuse(*args):
        raise PermissionError(13, "mprotect")

    monkeypatch.setattr(image, "_executable", refuse)

    with pytest.raises(QuantError, match="forbids programs to make executable memory"):
        link.link({"f": compiled(TEXT, "f")})


def test_linking_imports_neither_llvmlite_nor_numba(tmp_path):
    path = tmp_path / "f.o"
    path.write_bytes(compiled(TEXT, "f"))
    program = (
        "import sys; from quant.link import link; link({'f': open(sys.argv[1], 'rb').read()});"
        "print(*{m.split('.')[0] for m in sys.modules} & {'llvmlite', 'numba'})"
    )

    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True
    )

    assert done.stdout.strip() == ""
