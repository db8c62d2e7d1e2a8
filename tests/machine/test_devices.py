"""The service and the scheduled job of docs/devices.md, run as they are written."""

import configparser
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gguf_runtime import Model
from tests.machine import bare
from tests.tiny import with_template

PAGE = (bare.ROOT / "docs" / "devices.md").read_text(encoding="utf-8")
HANG_S = 120

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="systemd and cron")


def block(kind):
    (found,) = re.findall(rf"^```{kind}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    return found


@pytest.fixture
def machine(tmp_path):
    """A root of its own: /opt/gguf, /var/lib/gguf and /var/cache/gguf-runtime, kernels in place."""
    for name in ("opt/gguf/bin", "var/lib/gguf", "var/cache/gguf-runtime"):
        (tmp_path / name).mkdir(parents=True, mode=0o700)
    for name in ("gg", "gguf-runtime"):
        script = tmp_path / "opt/gguf/bin" / name
        script.write_text(
            f'#!/bin/sh\nPYTHONPATH={bare.ROOT} exec {sys.executable} -m gguf_runtime "$@"\n'
        )
        script.chmod(0o755)
    with_template(tmp_path / "var/lib/gguf/model.gguf")
    (tmp_path / "var/lib/gguf/prompt.txt").write_text("Hello")
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gguf-runtime"
    for kernels in base.glob("kernels-*"):
        target = tmp_path / "var/cache/gguf-runtime" / kernels.name
        shutil.copytree(kernels, target, copy_function=os.link)
        target.chmod(0o700)
    with Model(tmp_path / "var/lib/gguf/model.gguf", threads=1) as m:
        m.complete("Hello", max_tokens=2)  # the kernels are there
    return tmp_path


def placed(text, root):
    return re.sub(r"(?<![\w.])/(opt|var)/", rf"{root}/\1/", text)


def unit():
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str
    parser.read_string(block("ini"))
    return parser["Service"]


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd-analyze")
def test_systemd_finds_nothing_wrong_with_the_unit(machine):
    path = machine / "gguf-answer.service"
    path.write_text(placed(block("ini"), machine))

    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", path],
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )

    said = [line for line in done.stderr.splitlines() if path.name in line]
    assert (done.returncode, said) == (0, []), done.stderr


def service(machine, *more):
    """The service's process with its restrictions: no environment, no input, no network, read-only."""
    facts = unit()
    name, _, value = placed(facts["Environment"], machine).partition("=")
    command = [*shlex.split(placed(facts["ExecStart"], machine)), *more]
    if os.geteuid() == 0 and shutil.which("unshare"):
        cache = machine / "var/cache/gguf-runtime"
        script = (
            f'mount --bind {cache} {cache} && mount -o remount,bind,ro / 2>/dev/null; exec "$@"'
        )
        command = ["unshare", "--mount", "--net", "sh", "-c", script, "sh", *command]
    return subprocess.Popen(
        command,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C", name: value},
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_the_service_answers_with_nothing_but_its_cache(machine):
    process = service(machine)
    out, err = process.communicate(timeout=HANG_S)

    assert process.returncode == 0, err
    assert err == ""
    assert out.strip()


def test_the_service_ends_with_143_when_it_is_stopped(machine):
    process = service(machine, "-n", "-1", "-c", "200000", "--temperature", "0")
    with process:
        begin = process.stdout.read(1)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=HANG_S)

    assert process.returncode == 143, err
    assert begin + out


def test_the_scheduled_job_leaves_a_whole_answer(machine):
    line = placed(block("cron").strip(), machine)
    fields = line.split(None, 6)
    assert len(fields) == 7
    assert all(re.fullmatch(r"[\d*]+", f) for f in fields[:5])
    assert fields[5] == "root"
    assert "%" not in line  # cron takes it for a new line

    done = subprocess.run(
        ["/bin/sh", "-c", fields[6]],
        env={"PATH": "/usr/bin:/bin", "SHELL": "/bin/sh", "LOGNAME": "root"},
        cwd="/",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (machine / "var/lib/gguf/answer.txt").read_text().strip()
    assert not (machine / "var/lib/gguf/answer.new").exists()


def test_every_option_of_the_page_is_one_of_run():
    done = subprocess.run(
        [sys.executable, "-m", "gguf_runtime", "run", "--help"],
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=True,
        cwd=bare.ROOT,
    )
    asked = set(re.findall(r"`(--?[a-z-]+)", PAGE.partition("## A machine without")[0]))

    assert asked
    assert [option for option in sorted(asked) if option not in done.stdout] == []
