"""`run` where nothing is as usual: the documented code, stdout and stderr in each row.

A row is a piece of shell. In it `gg` is the program, $M a tiny model that can chat, $ASK what makes its answer
short and always the same.
"""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.machine.groups import group
from tests.tiny import with_template

ROOT = Path(__file__).resolve().parents[2]
HANG_S = 300
ASK = "-n 6 --temperature 0"
ANSWER = object()  # stands for what the plain call says
GG = 'gg() { "$PYTHON" -m gguf_runtime "$@"; }\n'
REFUSED = "error: the output cannot be written: "


@dataclass(frozen=True)
class Row:
    """One environment.

    out   ANSWER, a text, or None where it does not matter
    err   a pattern that all of stderr matches
    user  another user, by `unshare`'s options
    """

    name: str
    script: str
    code: int = 0
    out: Any = ANSWER
    err: str = ""
    needs: str = "sh"
    join: Callable[[], Any] = contextlib.nullcontext


def memory(limit: int) -> Any:
    return group("memory", v1={"memory.limit_in_bytes": limit}, v2={"memory.max": limit})


def half_a_core() -> Any:
    quota = {"cpu.cfs_period_us": 100_000, "cpu.cfs_quota_us": 50_000}
    return group("cpu", v1=quota, v2={"cpu.max": "50000 100000"})


NO_MEMORY = r"error: (this machine has not enough memory|this model .* does not fit)[^\0]*"
STRANGER = "unshare --user --map-user=54321 env -u HOME "
READ_ONLY = 'unshare --mount sh -c \'mount --bind -o ro "$1" "$1" && mount -o remount,bind,ro "$1" && shift && exec "$@"\' _ '

ROWS = [
    # ---- stdin
    Row("stdin is closed", 'gg run "$M" hi $ASK <&-'),
    Row(
        "stdin is closed and there is no prompt",
        'gg run "$M" $ASK <&-',
        2,
        "",
        r"error: no prompt\n.*",
    ),
    Row("stdin is the null device", 'gg run "$M" hi $ASK </dev/null'),
    Row(
        "stdin is the null device alone",
        'gg run "$M" $ASK </dev/null',
        2,
        "",
        r"error: no prompt\n.*",
    ),
    Row("stdin is an empty pipe", ': | gg run "$M" hi $ASK'),
    Row("stdin is a pipe with the prompt", 'printf hi | gg run "$M" $ASK'),
    Row(
        "stdin has 2 MB, more than the context",
        'head -c 2000000 /dev/zero | tr "\\0" x | gg run "$M" $ASK',
        1,
        "",
        r"error: the prompt is longer than the context\n"
        r"  expected at most [\d,]+ tokens, got 2,000,\d+, [\d,]+ too many\n.*",
    ),
    Row(
        "stdin has 2 MB, of which the end is taken",
        'head -c 2000000 /dev/zero | tr "\\0" x | gg run "$M" --raw $ASK --on-overflow trim -c 256',
        0,
        None,
        r"notice: 1,999,\d+ tokens of the prompt were dropped to fit the context: .*",
    ),
    Row(
        "inside while read, from a file",
        'printf "hi\\nhi\\n" >list; while read -r x; do gg run "$M" "$x" $ASK; done <list',
        out=lambda answer: answer * 2,
    ),
    Row(
        "inside while read, from a pipe",
        'printf "hi\\nhi\\n" | while read -r x; do gg run "$M" "$x" $ASK </dev/null; done',
        out=lambda answer: answer * 2,
    ),
    # ---- stdout and stderr
    Row("stdout is closed", 'gg run "$M" hi $ASK >&-', 7, "", REFUSED + "stdout is closed"),
    Row(
        "stdout is full",
        'gg run "$M" hi $ASK >/dev/full',
        7,
        "",
        REFUSED + "no space left on device",
    ),
    Row(
        "the reader leaves after one byte",
        '{ gg run "$M" hi -n 400 --temperature 0 --stop-id 2; echo $? >code; } | head -c1 >first; cat code',
        out="0\n",
        err=None,
    ),
    Row("stderr is closed", 'gg run "$M" hi $ASK 2>&-'),
    Row("stderr is full", 'gg run "$M" hi $ASK 2>/dev/full'),
    # ---- what is set, and what is not
    Row("no HOME", 'unset HOME; gg run "$M" hi $ASK'),
    Row("HOME is no folder", 'HOME=/dev/null gg run "$M" hi $ASK'),
    Row(
        "no HOME and nobody's user",
        STRANGER + '"$PYTHON" -m gguf_runtime run "$M" hi $ASK',
        needs="unshare --user --map-user=54321 true",
    ),
    Row(
        "no HOME, nobody's user and a model by name",
        "unset GGUF_RUNTIME_MODELS; " + STRANGER + '"$PYTHON" -m gguf_runtime run smollm2 hi $ASK',
        4,
        "",
        r"error: no home folder is known to keep models in\n  name one: export GGUF_RUNTIME_MODELS=.*",
        needs="unshare --user --map-user=54321 true",
    ),
    Row("TMPDIR is missing", 'TMPDIR=/nonexistent gg run "$M" hi $ASK'),
    Row(
        "TMPDIR is missing and a record is asked for",
        'TMPDIR=/nonexistent gg run "$M" hi $ASK --record r.json && test -s r.json',
    ),
    Row(
        "LANG=C and an emoji, taken and given",
        'test "$(gg run "$M" "hi 🙂" $ASK | od -c)" ='
        ' "$(LC_ALL=C PYTHONUTF8=0 PYTHONCOERCECLOCALE=0 gg run "$M" "hi 🙂" $ASK | od -c)"',
        out="",
    ),
    Row("TERM=dumb", 'TERM=dumb gg run "$M" hi $ASK'),
    Row("NO_COLOR", 'NO_COLOR=1 gg run "$M" hi $ASK'),
    Row("the clock is at 1970", 'PYTHONPATH="$CLOCK:$PYTHONPATH" gg run "$M" hi $ASK'),
    Row(
        "the clock of the system is at 1970",
        'faketime \'1970-01-02 00:00:00\' "$PYTHON" -m gguf_runtime run "$M" hi $ASK',
        needs="faketime '1970-01-02 00:00:00' true",
    ),
    # ---- files
    Row(
        "no byte code can be kept",
        'PYTHONPYCACHEPREFIX=/dev/null/no gg run "$M" hi $ASK',
    ),
    Row(
        "the packages are read-only",
        READ_ONLY + '"$ROOT" "$PYTHON" -m gguf_runtime run "$M" hi $ASK',
        needs=READ_ONLY + "/tmp true",
    ),
    Row(
        "the cache is read-only",
        READ_ONLY + '"$GGUF_RUNTIME_CACHE" "$PYTHON" -m gguf_runtime run "$M" hi $ASK',
        needs=READ_ONLY + "/tmp true",
    ),
    Row(
        "all is read-only",
        READ_ONLY + '/ "$PYTHON" -m gguf_runtime run "$M" hi $ASK',
        needs=READ_ONLY + "/ true",
    ),
    # ---- the machine
    Row(
        "one allowed core",
        'taskset -c 0 "$PYTHON" -m gguf_runtime run "$M" hi $ASK',
        needs="taskset -c 0 true",
    ),
    Row("a quota of half a core", 'gg run "$M" hi $ASK', join=half_a_core),
    Row("64 threads", 'gg run "$M" hi $ASK -t 64'),
    Row("200 MB of memory", 'gg run "$M" hi $ASK', join=lambda: memory(200_000_000)),
    Row(
        "20 MB of memory, planned",
        'gg run "$M" hi $ASK --max-memory 20MB',
        4,
        "",
        r"error: this model with a context of [\d,]+ tokens does not fit into memory\n"
        r"  expected .* weights \+ .* cache \+ .* buffers.*, got 20 MB available\n.*",
    ),
    Row("ulimit -v 500 MB", 'ulimit -v 500000; gg run "$M" hi $ASK'),
    Row("ulimit -v 140 MB", 'ulimit -v 140000; gg run "$M" hi $ASK', 4, "", NO_MEMORY),
    Row("ulimit -v 50 MB", 'ulimit -v 50000; gg run "$M" hi $ASK', 4, "", NO_MEMORY),
    Row("ulimit -n 16", 'ulimit -n 16; gg run "$M" hi $ASK'),
]


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A model, a cache with this machine's kernels, and a clock that stands."""
    folder = tmp_path_factory.mktemp("environments")
    with_template(folder / "tiny.gguf")
    clock = folder / "clock"
    clock.mkdir()
    (clock / "sitecustomize.py").write_text(
        "import time\ntime.time = lambda: 12.5\ntime.time_ns = lambda: 12_500_000_000\n"
    )
    cache = folder / "cache"
    cache.mkdir(mode=0o700)
    base = os.environ.get("GGUF_RUNTIME_CACHE") or Path(
        os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "gguf-runtime"
    )
    for kernels in Path(base).glob("kernels-*"):
        (cache / kernels.name).mkdir(mode=0o700)
        for f in kernels.iterdir():
            with contextlib.suppress(OSError):
                os.link(f, cache / kernels.name / f.name)
    return folder


@pytest.fixture(scope="module")
def sh(place, tmp_path_factory):
    """Runs a script; gives code, stdout and stderr."""
    home = tmp_path_factory.mktemp("home")

    def run(script: str, join: Callable[[], None] | None = None) -> tuple[int, str, str]:
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHON": sys.executable,
            "PYTHONPATH": str(ROOT),
            "ROOT": str(ROOT),
            "HOME": str(home),
            "GGUF_RUNTIME_CACHE": str(place / "cache"),
            "GGUF_RUNTIME_MODELS": str(place),
            "M": str(place / "tiny.gguf"),
            "CLOCK": str(place / "clock"),
            "ASK": ASK,
        }
        for name in ("GGUF_RUNTIME_ISA", "GGUF_RUNTIME_EXACT"):
            if name in os.environ:
                environment[name] = os.environ[name]
        done = subprocess.run(
            ["sh", "-c", GG + script],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=environment,
            cwd=home,
            preexec_fn=join,
            timeout=HANG_S,
            check=False,
        )
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    return run


@pytest.fixture(scope="module")
def answer(sh) -> str:
    """What the plain call says; the first one may compile."""
    sh('gg run "$M" hi $ASK')
    code, out, err = sh('gg run "$M" hi $ASK')
    assert (code, err) == (0, "")
    assert out.strip()
    return out


@pytest.fixture
def usable(sh) -> Callable[[str], None]:
    def check(command: str) -> None:
        code, _, err = sh(command)
        if code:
            pytest.skip(f"cannot be had here: {err.strip() or command}")

    return check


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name.replace(" ", "-"))
def test_run_does_the_documented_thing_where(row, sh, answer, usable):
    if row.needs != "sh":
        usable(row.needs)
    with row.join() as join:
        code, out, err = sh(row.script, join)

    assert "Traceback" not in err
    assert code == row.code, err
    expected = row.out(answer) if callable(row.out) else answer if row.out is ANSWER else row.out
    if expected is not None:
        assert out == expected
    if row.err is not None:
        assert re.fullmatch(row.err, err.rstrip("\n")), err


# ---- what takes more than a line of shell --------------------------------------------------------


def at_terminal(argv: list[str], env: dict[str, str]) -> tuple[subprocess.Popen[bytes], int]:
    """A process whose stdin and stderr are a terminal, and the terminal's other end."""
    main, other = pty.openpty()
    process = subprocess.Popen(argv, stdin=other, stdout=subprocess.PIPE, stderr=other, env=env)
    os.close(other)
    return process, main


def read_until(terminal: int, pattern: str) -> str:
    """What a terminal shows, up to a match."""
    seen = ""
    while not re.search(pattern, seen):
        assert select.select([terminal], [], [], HANG_S)[0], seen
        try:
            data = os.read(terminal, 4096)
        except OSError:  # the other end has gone
            data = b""
        assert data, seen
        seen += data.decode("utf-8", "replace")
    return seen


def rest_of(terminal: int) -> str:
    seen = b""
    with contextlib.suppress(OSError):
        while data := os.read(terminal, 4096):
            seen += data
    os.close(terminal)
    return seen.decode("utf-8", "replace")


@pytest.fixture(scope="module")
def environment(place, tmp_path_factory) -> dict[str, str]:
    home = str(tmp_path_factory.mktemp("home"))
    own = {"GGUF_RUNTIME_CACHE": str(place / "cache"), "HOME": home, "PYTHONPATH": str(ROOT)}
    kept = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR")}
    return kept | own | {"TERM": "xterm", "COLUMNS": "80"}


@pytest.mark.parametrize(
    ("setting", "colour", "moves"),
    [({}, True, True), ({"NO_COLOR": "1"}, False, True), ({"TERM": "dumb"}, False, False)],
    ids=["usual", "NO_COLOR", "TERM=dumb"],
)
def test_a_terminal_gets_the_codes_that_it_understands_and_stdout_none(
    place, environment, answer, setting, colour, moves
):
    words = [
        sys.executable,
        "-m",
        "gguf_runtime",
        "run",
        str(place / "tiny.gguf"),
        "hi",
        "--think",
        "off",
    ]
    process, terminal = at_terminal([*words, *ASK.split()], environment | setting)
    shown = rest_of(terminal)
    out, _ = process.communicate(timeout=HANG_S)

    assert process.returncode == 0
    assert out.decode() == answer
    assert b"\x1b" not in out
    assert "notice:" in shown
    assert ("\x1b[33m" in shown) == colour
    assert ("\x1b" in shown) <= moves


def test_sigterm_while_a_long_prompt_is_read_ends_it_at_once(place, environment):
    """The model is tiny, so its prompt has to be very long to take a while."""
    prompt = place / "long"
    prompt.write_text("x" * 120_000)
    words = ["run", str(place / "tiny.gguf"), "--raw", "-f", str(prompt), "-c", "130000", "-n", "4"]
    process, terminal = at_terminal([sys.executable, "-m", "gguf_runtime", *words], environment)
    shown = read_until(terminal, r"reading [\d,]+/120,000 tokens, \d+ s left")
    begin = time.monotonic()
    process.send_signal(signal.SIGTERM)
    shown += rest_of(terminal)
    out, _ = process.communicate(timeout=HANG_S)
    spent = time.monotonic() - begin

    assert process.returncode == 143
    assert out == b""
    assert "Traceback" not in shown
    assert "error" not in shown
    assert spent < 0.2 * 5 + 4  # the promise times five, and the end of a process on a busy machine


def replaced_while_running(place, environment, folder, replace):
    """(what an undisturbed answer is, exit code, last event, stderr) of one whose file is replaced."""
    model = folder / "m.gguf"
    shutil.copy(place / "tiny.gguf", model)
    words = ["run", str(model), "hi", "--jsonl", "-n", "400", "--seed", "3", "--temp", "2"]
    words += ["--top-k", "0", "--top-p", "1", "--min-p", "0", "--no-speculate"]
    command = [sys.executable, "-m", "gguf_runtime", *words]
    whole = subprocess.run(command, env=environment, capture_output=True, check=True)
    expected = json.loads(whole.stdout.splitlines()[-1])["answer"]
    assert len(expected["ids"]) > 100
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    while b'"delta"' not in process.stdout.readline():
        pass
    replace(model)
    out, err = process.communicate(timeout=HANG_S)
    return expected, process.returncode, json.loads(out.splitlines()[-1]), err.decode()


def test_a_model_file_that_is_renamed_over_changes_nothing(place, environment, tmp_path):
    def replace(model):
        other = model.with_name("other")
        other.write_bytes(b"something else")
        os.replace(other, model)

    expected, code, last, err = replaced_while_running(place, environment, tmp_path, replace)

    assert (code, err) == (0, "")
    assert last["answer"]["ids"] == expected["ids"]


def test_a_model_file_that_is_written_over_ends_the_answer_with_the_cure(
    place, environment, tmp_path
):
    _, code, last, err = replaced_while_running(
        place, environment, tmp_path, lambda model: model.write_bytes(b"short")
    )

    assert code == 3
    assert last["event"] == "error"
    assert "not with cp" in err
    assert "Traceback" not in err


def test_a_damaged_object_file_is_built_again(place, environment, answer, tmp_path):
    """Kernels are linked from the usual place, so a damaged one is a new file."""
    cache = tmp_path / "cache"
    shutil.copytree(place / "cache", cache, copy_function=os.link)
    cache.chmod(0o700)
    [kernels] = [d for d in cache.iterdir() if d.name.startswith("kernels-")][-1:]
    kernels.chmod(0o700)
    for n, f in enumerate(sorted(kernels.glob("sample*.o"))):
        data = bytearray(f.read_bytes())
        data[len(data) // 2] ^= 0xFF
        f.unlink()
        f.write_bytes(bytes(data[:100]) if n % 2 else bytes(data))
        f.chmod(0o600)

    words = ["run", str(place / "tiny.gguf"), "hi", *ASK.split()]
    env = environment | {"GGUF_RUNTIME_CACHE": str(cache)}
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-m", "gguf_runtime", *words],
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=HANG_S,
            check=False,
        )
        assert (done.returncode, done.stdout.decode()) == (0, answer), done.stderr
    assert done.stderr == b""


@pytest.mark.slow
def test_two_at_once_on_an_empty_cache_both_answer(place, environment, answer, tmp_path):
    env = environment | {"GGUF_RUNTIME_CACHE": str(tmp_path / "empty")}
    words = ["run", str(place / "tiny.gguf"), "hi", *ASK.split()]
    both = [
        subprocess.Popen(
            [sys.executable, "-m", "gguf_runtime", *words],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for _ in range(2)
    ]
    ends = [p.communicate(timeout=2 * HANG_S) for p in both]

    assert [p.returncode for p in both] == [0, 0], ends
    assert [out.decode() for out, _ in ends] == [answer, answer]


@pytest.mark.slow
def test_without_a_cache_kernels_are_compiled_for_one_call_and_it_is_said(
    place, environment, answer
):
    env = environment | {"GGUF_RUNTIME_CACHE": "/dev/null/no"}
    words = ["run", str(place / "tiny.gguf"), "hi", *ASK.split()]
    done = subprocess.run(
        [sys.executable, "-m", "gguf_runtime", *words],
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=2 * HANG_S,
        check=False,
    )

    assert (done.returncode, done.stdout.decode()) == (0, answer)
    assert b"notice: compiled kernels are kept in memory only" in done.stderr
