"""Addresses of the operating system's functions that the runner calls from native code.

Objects have no undefined symbols, so the control block carries these. Only Linux with a futex, and
the pthread way that older macOS takes, could be run where this was written.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from collections.abc import Callable
from typing import Any

from quant import pool_kernels as native

_FUTEX = {"x86_64": 202, "aarch64": 98, "riscv64": 98}
_WINDOWS_SYNC = "api-ms-win-core-synch-l1-2-0"

Words = dict[int, int]  # byte offset in the control block -> value


def describe(park: str | None = None) -> tuple[Words, list[Any]]:
    """Words for the control block, and objects that must outlive it.

    park: "futex", "os_sync", "on_address", "pthread" or "yield"; the system's best unless given.
    """
    if sys.platform == "win32":
        return _windows()
    libc = ctypes.CDLL(None)
    words = {
        native.CLOCK: _address(libc, "clock_gettime"),
        native.CLOCK_ID: 6 if sys.platform == "darwin" else 1,  # CLOCK_MONOTONIC
        native.YIELD: _address(libc, "sched_yield"),
    }
    for name in [park] if park is not None else ["futex", "os_sync", "pthread", "yield"]:
        more = _WAYS[name](libc)
        if more is not None:
            return {**words, **more[0]}, [libc, *more[1]]
    raise AssertionError(park)


def _futex(libc: ctypes.CDLL) -> tuple[Words, list[Any]] | None:
    number = _FUTEX.get(platform.machine())
    if sys.platform != "linux" or number is None:
        return None
    call = _address(libc, "syscall")
    words = {native.PARK: native.PARK_FUTEX, native.PARK_A: number}
    return {**words, native.WAIT: call, native.WAKE: call}, []


def _os_sync(libc: ctypes.CDLL) -> tuple[Words, list[Any]] | None:
    # macOS 14.4 and later
    if not hasattr(libc, "os_sync_wait_on_address"):
        return None
    return {
        native.PARK: native.PARK_OS_SYNC,
        native.WAIT: _address(libc, "os_sync_wait_on_address"),
        native.WAKE: _address(libc, "os_sync_wake_by_address_all"),
    }, []


def _pthread(libc: ctypes.CDLL) -> tuple[Words, list[Any]] | None:
    if not hasattr(libc, "pthread_cond_wait"):
        return None
    # 64 and 48 bytes on macOS, 40 and 48 on Linux
    mutex, condition = (ctypes.c_int64 * 16)(), (ctypes.c_int64 * 16)()
    libc.pthread_mutex_init(ctypes.byref(mutex), None)
    libc.pthread_cond_init(ctypes.byref(condition), None)
    return {
        native.PARK: native.PARK_PTHREAD,
        native.PARK_A: ctypes.addressof(mutex),
        native.PARK_B: ctypes.addressof(condition),
        native.PARK_LOCK: _address(libc, "pthread_mutex_lock"),
        native.PARK_UNLOCK: _address(libc, "pthread_mutex_unlock"),
        native.WAIT: _address(libc, "pthread_cond_wait"),
        native.WAKE: _address(libc, "pthread_cond_broadcast"),
    }, [mutex, condition]


def _yield(libc: ctypes.CDLL) -> tuple[Words, list[Any]] | None:
    return {native.PARK: native.PARK_YIELD}, []


_WAYS: dict[str, Callable[[ctypes.CDLL], tuple[Words, list[Any]] | None]] = {
    "futex": _futex,
    "os_sync": _os_sync,
    "pthread": _pthread,
    "yield": _yield,
}


def _windows() -> tuple[Words, list[Any]]:
    if sys.platform != "win32" or os.name != "nt":
        raise AssertionError
    kernel, sync = ctypes.WinDLL("kernel32"), ctypes.WinDLL(_WINDOWS_SYNC)
    return {
        native.CLOCK: _address(kernel, "QueryPerformanceCounter"),
        native.CLOCK_ID: -1,
        native.YIELD: _address(kernel, "SwitchToThread"),
        native.PARK: native.PARK_ON_ADDRESS,
        native.WAIT: _address(sync, "WaitOnAddress"),
        native.WAKE: _address(sync, "WakeByAddressAll"),
    }, [kernel, sync]


def ticks_per_second() -> int:
    """The unit of the native clock."""
    if sys.platform == "win32":
        value = ctypes.c_int64(0)
        ctypes.WinDLL("kernel32").QueryPerformanceFrequency(ctypes.byref(value))
        return value.value
    return 10**9


def _address(library: ctypes.CDLL, name: str) -> int:
    return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
