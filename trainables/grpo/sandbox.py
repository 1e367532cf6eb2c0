"""Runs Python code that a model wrote, in a process with limits.

It keeps mistakes of a model from harming the training: endless loops, large allocations, files,
child processes, connections. It is no defence against code that is written to break out.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress

_CHILD = """
import ctypes, json, os, resource, sys
given = json.loads(sys.stdin.buffer.read())
memory, seconds = given["memory"], given["seconds"]
limits = {"AS": memory, "CPU": seconds, "FSIZE": 1 << 20, "CORE": 0, "NOFILE": 64, "NPROC": 0}
try:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.unshare(0x10000000 | 0x40000000)  # a network of its own, without interfaces
except (OSError, AttributeError):
    pass  # not Linux
for name, most in limits.items():
    try:
        resource.setrlimit(getattr(resource, "RLIMIT_" + name), (most, most))
    except (AttributeError, ValueError, OSError):
        pass  # not on this system
token, fd = given["token"], int(sys.argv[1])
code = compile(given["code"], "<completion>", "exec")
del given
exec(code, {"__name__": "__main__"})
os.write(fd, token.encode())
"""


def passes(code: str, timeout_s: float, memory_mib: int) -> bool:
    """Whether code runs to its end without an exception, in time and within the memory.

    The code has the standard library only, an empty folder, no environment and, where the kernel
    lets an unprivileged process have one, a network without interfaces. All processes that it
    started and that stayed in its group are killed.

    Args:
        code: Python.
        timeout_s: seconds of wall time.
        memory_mib: largest address space.
    """
    token = secrets.token_hex(16)  # code that leaves early cannot write it
    given = {
        "code": code,
        "token": token,
        "memory": memory_mib << 20,
        "seconds": int(timeout_s) + 1,
    }
    read, write = os.pipe()
    with open(read, "rb") as told, tempfile.TemporaryDirectory(prefix="completion-") as folder:
        try:
            process = _start(folder, write)
        finally:
            os.close(write)
        try:
            with suppress(subprocess.TimeoutExpired, BrokenPipeError):
                process.communicate(json.dumps(given).encode(), timeout=timeout_s)
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        os.set_blocking(read, False)  # a process that left the group may hold the other end
        return told.read(len(token)) == token.encode()


def _start(folder: str, write: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _CHILD, str(write)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=folder,
        env={},
        pass_fds=(write,),
        start_new_session=True,
    )
