"""The parts of a program that are the same in all: building, calling, checking, holding."""

from __future__ import annotations

CPP_IMPORTS = """\
import ctypes
import hashlib
import os
import subprocess
import tempfile

import torch
import torch.nn as nn
"""

TRITON_IMPORTS = """\
import torch
import torch.nn as nn
import triton
import triton.language as tl
"""

LIBDEVICE = "from triton.language.extra import libdevice\n"

NAMES = frozenset(
    ("expect", "module_tensor", "refuse_gradients", "same", "view", "hold", "ModelNew", "torch", "nn", "self")
)
"""What a program's own names must not be, whatever its kernels are written in."""

CPP_NAMES = frozenset(
    ("build", "function", "library", "SOURCE", "FLAGS", "ctypes", "hashlib", "os", "subprocess", "tempfile")
)

TRITON_NAMES = frozenset(("triton", "tl", "libdevice"))

BASE_FLAGS = ("-O3", "-DNDEBUG", "-std=c++20", "-march=native", "-fopenmp", "-shared", "-fPIC")

BUILD = '''\
def build(source):
    """Compile to a shared library once per source text, and load it."""
    torch_home = os.path.dirname(torch.__file__)
    flags = [*FLAGS, f"-I{torch_home}/include", f"-L{torch_home}/lib", "-ltorch_cpu", "-lc10"]
    key = hashlib.sha256((source + " ".join(flags)).encode()).hexdigest()[:20]
    default = os.path.join(tempfile.gettempdir(), f"kforge-{os.getuid()}")
    folder = os.environ.get("KFORGE_BUILD_DIR", default)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    library = os.path.join(folder, f"{key}.so")
    if not os.path.exists(library):
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            code, partial = os.path.join(scratch, f"{key}.cpp"), os.path.join(scratch, f"{key}.so")
            with open(code, "w") as file:
                file.write(source)
            command = [os.environ.get("CXX", "g++"), code, *flags, "-o", partial]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(f"compilation failed: {' '.join(command)}\\n{done.stderr}")
            os.replace(partial, library)
    return ctypes.CDLL(library)
'''

FUNCTION = '''\
def function(name, *kinds, result=None):
    """A C function of the library; its arguments are addresses, or numbers of the kinds given."""
    found = getattr(library, name)
    found.argtypes = kinds
    found.restype = result
    return found
'''

EXPECT = '''\
def expect(tensor, name, shape, stride, dtype):
    """The tensor in the layout the kernels were made for; ValueError if they were not made for it."""
    if tensor.shape != shape or tensor.dtype != dtype or tensor.device.type != "DEVICE":
        found = f"{tuple(tensor.shape)} of {tensor.dtype} on {tensor.device}"
        raise ValueError(f"{name} must be {shape} of {dtype} on DEVICE, and is {found}: lift the module again for it")
    if tensor.stride() != stride:
        return torch.empty_strided(shape, stride, dtype=dtype, device=tensor.device).copy_(tensor)
    return tensor
'''

MODULE_TENSOR = '''\
def module_tensor(tensor, name, shape, stride, dtype):
    """A tensor of the module where it lies; ValueError if it is not as the kernels were made for it."""
    if expect(tensor, f"the module's {name}", shape, stride, dtype) is not tensor:
        raise ValueError(f"the module's {name} must have strides {stride}, and has {tensor.stride()}")
    return tensor
'''

REFUSE_GRADIENTS = '''\
def refuse_gradients(*tensors):
    """RuntimeError where autograd would follow a call: the kernels have no backward, and it would not notice."""
    if any(tensor.requires_grad for tensor in tensors):
        raise RuntimeError("the module was lifted for inference and has no backward: call it under torch.no_grad()")
'''

SAME = '''\
def same(value, name, expected):
    """ValueError unless an argument that is no tensor has the value the kernels were made for."""
    if type(value) is not type(expected) or value != expected:
        raise ValueError(f"{name} must be {expected!r}, and is {value!r}: lift the module again for it")
'''

VIEW = '''\
def view(tensor, shape, stride, offset):
    """The tensor's memory under another shape."""
    return torch.as_strided(tensor, shape, stride, tensor.storage_offset() + offset)
'''

HOLD = '''\
def hold(module, name, tensor, trainable, persistent=True):
    """Register a tensor under a dotted name, so that the reference's state loads as it is."""
    *path, last = name.split(".")
    for part in path:
        if part not in module._modules:
            module.add_module(part, nn.Module())
        module = module._modules[part]
    if trainable:
        module.register_parameter(last, tensor if isinstance(tensor, nn.Parameter) else nn.Parameter(tensor))
    else:
        module.register_buffer(last, tensor, persistent=persistent)
'''
