"""Programs that go wrong in every way the judge must survive: what each does, its outcome, and what is said of it."""

from __future__ import annotations

import os
from dataclasses import dataclass

LEFT_ASLEEP = f"1000.{os.getpid()}"
"""How long the process sleeps that a program leaves behind: told from those of other tests that run at the time."""

_PROGRAM = '''
import ctypes, os, signal, socket, subprocess, sys, tempfile, time
import torch
import torch.nn as nn
{top}
SOURCE = r"""
#include <cstdlib>
extern "C" void run(const float* x, const float* s, float* y, long rows, long columns, float slope) {{
    {native}
    for (long r = 0; r < rows; ++r)
        for (long c = 0; c < columns; ++c) {{
            float v = x[r * columns + c];
            y[r * columns + c] = (v > 0 ? v : slope * v) * s[c];
        }}
}}
"""
folder = tempfile.mkdtemp()
with open(folder + "/k.cpp", "w") as file:
    file.write(SOURCE)
subprocess.run(["g++", "-O2", "-shared", "-fPIC", folder + "/k.cpp", "-o", folder + "/k.so"], check=True)
kernel = ctypes.CDLL(folder + "/k.so").run
kernel.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_long] * 2 + [ctypes.c_float]

class {name}(nn.Module):
    def __init__(self, columns, slope):
        super().__init__()
        {init}
        self.slope = slope
        self.scale = nn.Parameter(torch.rand(columns) + 0.5)

    def forward(self, {arguments}):
        {forward}
        y = torch.empty_like(x)
        kernel(x.data_ptr(), self.scale.data_ptr(), y.data_ptr(), x.shape[0], x.shape[1], self.slope)
        {after}
        return y
'''


def program(
    top: str = "",
    native: str = "",
    init: str = "pass",
    forward: str = "pass",
    after: str = "pass",
    name: str = "ModelNew",
    arguments: str = "x",
) -> str:
    """The honest program with something added."""
    indent = lambda text: text.replace("\n", "\n        ")  # noqa: E731
    return _PROGRAM.format(
        top=top,
        native=native,
        init=indent(init),
        forward=indent(forward),
        after=indent(after),
        name=name,
        arguments=arguments,
    )


@dataclass(frozen=True)
class Fault:
    name: str
    source: str
    outcome: str
    says: str
    """A piece of the sentence that must be in the verdict's detail."""
    everywhere: bool = True
    """Whether it is safe to try at the weakest sandbox level too."""
    endless: bool = False
    """Whether it ends by a time limit only."""


_EVERY_DESCRIPTOR = """
for fd in range(3, 256):
    try:
        os.write(fd, b'{"ok": true, "ns": [1]}' * 50)
    except OSError:
        pass
"""

_FORK_BOMB = """
def bomb():
    while True:
        os.fork()
bomb()
"""

_LEAK_PROBE = """
secret = [value for value in os.environ.values() if "sk-kforge-secret" in value]
found = []
for place in (os.path.expanduser("~"), "/root", "/home"):
    try:
        found += os.listdir(place)
    except OSError:
        pass
if secret:
    raise RuntimeError("leaked: " + secret[0])
"""

FAULTS = (
    Fault("nothing_wrong", program(), "correct", "agree with the reference"),
    Fault("empty", "  \n", "generation_failure", "empty"),
    Fault(
        "missing_class",
        program(name="Fast"),
        "generation_failure",
        "does not define a class `ModelNew` (it defines Fast)",
    ),
    Fault("syntax_error", program(top="def f(:\n    pass"), "compilation_failure", "line 5"),
    Fault("compiler_error", program(native="float q = undefined_name;"), "compilation_failure", "undefined_name"),
    Fault(
        "missing_package",
        program(top="import no_such_package"),
        "compilation_failure",
        "No module named 'no_such_package'",
    ),
    Fault(
        "raises_in_init",
        program(init="raise ValueError('no good')"),
        "runtime_error",
        "ValueError in __init__: no good",
    ),
    Fault(
        "raises_in_forward",
        program(forward="raise ValueError('odd shape')"),
        "runtime_error",
        "ValueError in forward: odd shape",
    ),
    Fault("wrong_arity", program(arguments="x, y2"), "runtime_error", "TypeError in forward"),
    Fault("wrong_shape", program(after="y = y[:, :-1]"), "mismatch", "has shape (512, 1023), expected (512, 1024)"),
    Fault("wrong_dtype", program(after="y = y.double()"), "mismatch", "has dtype float64, expected float32"),
    Fault("wrong_device", program(after="y = y.to('meta')"), "mismatch", "on device meta"),
    Fault("not_a_number", program(after="y[3, 5] = float('nan')"), "mismatch", "at [3, 5]: expected"),
    Fault("returns_none", program(after="return None"), "mismatch", "is None, expected a tensor"),
    Fault(
        "returns_generator", program(after="return (t for t in [y])"), "mismatch", "is a generator, expected a tensor"
    ),
    Fault("segfault", program(native="*(volatile int*)8 = 1;"), "runtime_error", "SIGSEGV"),
    Fault("abort", program(native="abort();"), "runtime_error", "SIGABRT"),
    Fault(
        "endless_loop_in_c",
        program(native="for (volatile long i = 0; ; i = i + 1) {}"),
        "runtime_error",
        "did not finish",
        endless=True,
    ),
    Fault(
        "endless_loop_at_import",
        program(top="while True: pass"),
        "runtime_error",
        "did not finish while the file was imported",
        endless=True,
    ),
    Fault("fork_bomb", program(top=_FORK_BOMB), "runtime_error", "", everywhere=False),
    Fault("huge_allocation", program(forward="torch.empty(25_000_000_000).fill_(1)"), "runtime_error", "memory"),
    Fault("huge_print", program(top="for i in range(1024): sys.stdout.write('x' * (1 << 20))"), "correct", "agree"),
    Fault("closes_descriptors", program(top="os.closerange(0, 256)"), "runtime_error", "closed its channel"),
    Fault("writes_descriptors", program(init=_EVERY_DESCRIPTOR), "rejected", "channel"),
    Fault("kills_parent", program(init="os.kill(os.getppid(), signal.SIGKILL)"), "any", "", everywhere=False),
    Fault("kills_everything", program(init="os.kill(-1, signal.SIGKILL)"), "any", "", everywhere=False),
    Fault(
        "deletes_its_folder", program(after="import shutil; shutil.rmtree(os.getcwd(), ignore_errors=True)"), "any", ""
    ),
    Fault(
        "leaves_a_child",
        program(init=f"subprocess.Popen(['sleep', '{LEFT_ASLEEP}'])"),
        "rejected",
        "left processes running: sleep",
    ),
    Fault(
        "leaves_a_daemon",
        program(init="os.fork() or (os.setsid(), os.fork() or time.sleep(1000), os._exit(0))"),
        "rejected",
        "left processes",
    ),
    Fault("exits_at_import", program(top="os._exit(0)"), "runtime_error", "exit status 0 while the file was imported"),
    Fault("system_exit", program(top="sys.exit(0)"), "compilation_failure", "SystemExit"),
    Fault("reads_environment_and_home", program(init=_LEAK_PROBE), "rejected", "os.listdir"),
    Fault("opens_a_socket", program(forward="socket.create_connection(('127.0.0.1', 9), 1)"), "rejected", "127.0.0.1"),
)
