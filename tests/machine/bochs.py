"""Runs a kernel on the AVX-512 processor that Bochs emulates, several rows of arguments per boot.

Uses the script `arm64_avx512.py` of the tools folder, which boots a bare machine: there is one
array, the image, and the addresses in the arguments become places in it.
"""

import importlib.util
from pathlib import Path

import numpy as np

from quant import selftest

BIOS = Path("/usr/share/bochs/BIOS-bochs-latest")
IMAGE_BYTES = 420_000  # what one boot can load, less the code
SCRATCH = 0x1000000  # memory above image and stack


class Image:
    """Arrays one after the other, equal ones once, each at a multiple of 64."""

    def __init__(self):
        self.parts, self.places, self.size = [], {}, 0

    def put(self, a, shared=True):
        data = a.tobytes()
        if shared and data in self.places:
            return self.places[data]
        at = self.size
        self.parts.append(data + bytes(-len(data) % 64))
        self.size += len(self.parts[-1])
        if shared:
            self.places[data] = at
        return at


def load(tools):
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("arm64_avx512", tools / "arm64_avx512.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def digest(tools, data, spec):
    """What `quant.selftest.computed` gives, computed by the object `data` in the emulator."""
    results, batch, image = [], [], Image()
    for job in selftest.jobs(spec, "avx512vnni"):
        if image.size > IMAGE_BYTES * 3 // 4:
            results += boot(tools, data, batch, image)
            batch, image = [], Image()
        words = [str(value) for value in job.args.tolist()]
        for a in job.reads:
            is_scratch = spec.factory != "quantize" and a is job.reads[-1]
            place = f"{SCRATCH}l" if is_scratch else f"(long)arr0+{image.put(a)}"
            words = [place if w == str(a.ctypes.data) else w for w in words]
        out = image.put(job.out, shared=False)
        words = [f"(long)arr0+{out}" if w == str(job.out.ctypes.data) else w for w in words]
        batch.append((job, words, out))
    results += boot(tools, data, batch, image)
    return selftest.digest(results)


def boot(tools, data, batch, image):
    calls = [
        f"{{long g[]={{{','.join(words)}}};for(long t=0;t<{job.tasks};t++)kernel((long)g,t,0l);}}"
        for job, words, _ in batch
    ]
    vm = load(tools)
    vm._object = lambda *_: (data, "kernel", "")
    vm.HARNESS = vm.HARNESS.replace("@CALL@;", "".join(calls))
    blob = vm.run(None, None, [np.frombuffer(b"".join(image.parts), np.uint8)])[0]
    for job, _, at in batch:
        out = blob[at : at + job.out.nbytes].view(job.out.dtype).reshape(job.out.shape)
        yield job.result(out)
