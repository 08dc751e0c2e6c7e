"""What a program finds in place of an NVIDIA GPU that is elsewhere: the little that is known of it.

Whatever else a program asks raises `NotKnownHere` and is noted as a doubt, even if the program goes on: what it does
from then on may be something else where the device is.
"""

from __future__ import annotations

import importlib.machinery
import os
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch

_MOST_DOUBTS, _LONGEST_DOUBT = 20, 200
_ENVIRONMENT = ("CUDA", "NVCC", "NVIDIA", "NVRTC", "TORCH", "LD_")
_IN_PATHS = ("cuda", "nvidia")
"""What is in the name of a folder or file that the driver or the toolkit brought."""
_EVENTS = frozenset(
    (
        *("subprocess.Popen", "os.system", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec"),
        *("ctypes.dlopen", "os.listdir", "os.scandir", "glob.glob", "glob.glob/2"),
    )
)
_own_stat = os.stat


class NotKnownHere(RuntimeError):
    """A program asks for what only the device can answer."""


class Doubts:
    """What may be otherwise where the device is."""

    def __init__(self) -> None:
        self._noted: list[str] = []

    @property
    def noted(self) -> tuple[str, ...]:
        return tuple(self._noted)

    def note(self, what: str) -> None:
        if len(self._noted) < _MOST_DOUBTS:
            self._noted.append(what[:_LONGEST_DOUBT])

    def refuse(self, what: str) -> NoReturn:
        """Note it, and raise NotKnownHere."""
        self.note(what)
        raise NotKnownHere(f"{what}: not known where the device is not")


class UnknownObject:
    """Something of the device's libraries that may be imported, and not used."""

    def __init__(self, doubts: Doubts, name: str) -> None:
        self._doubts, self._name = doubts, name

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        self._doubts.refuse(f"{self._name}()")

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        self._doubts.refuse(f"{self._name}.{name}")


def _refusing(name: str) -> Callable[..., NoReturn]:
    """A method that Python looks for in a class, whatever its objects say."""

    def refuse(self: UnknownObject, *_: Any) -> NoReturn:
        self._doubts.refuse(f"{self._name} {name}")

    return refuse


for _name in (
    "instancecheck",
    "subclasscheck",
    "mro_entries",
    "or",
    "ror",
    "getitem",
    "iter",
    "enter",
    "bool",
    "index",
):
    setattr(UnknownObject, f"__{_name}__", _refusing(_name))


class AbsentDevice:
    """As cuda.core's `Device`, under which name programs find it."""

    def __init__(self, doubts: Doubts, capability: tuple[int, int], name: str, multiprocessors: int) -> None:
        self._doubts = doubts
        self._known = {"name": name} if name else {}
        self._count = multiprocessors
        self.capability = capability
        self.device_id = 0
        self.arch = f"{capability[0]}{capability[1]}"
        self.compute_capability = _Capability(*capability)

    def __call__(self, device_id: Any = None) -> AbsentDevice:
        """Where it stands for the class: the one device that a runner sees."""
        if device_id not in (None, 0):
            self._doubts.refuse(f"Device({device_id!r})")
        return self

    def set_current(self, *_: Any) -> None:
        """There is no other."""

    @property
    def properties(self) -> Any:
        """What cuda.core knows of a device, of which one number is known here."""
        known = {"compute_capability_major": self.capability[0], "compute_capability_minor": self.capability[1]}
        count = {"multiprocessor_count": self._count} if self._count else {}
        return _Properties(self._doubts, "Device.properties", {**known, **count})

    @property
    def torch_properties(self) -> Any:
        """The same as torch calls it."""
        known = {"major": self.capability[0], "minor": self.capability[1], **self._known}
        count = {"multi_processor_count": self._count} if self._count else {}
        return _Properties(self._doubts, "torch.cuda.get_device_properties()", {**known, **count})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name not in self._known:
            self._doubts.refuse(f"Device.{name}")
        return self._known[name]


class _Capability(tuple[int, int]):
    """As cuda.core has it: a pair with names."""

    __slots__ = ()

    def __new__(cls, major: int, minor: int) -> _Capability:
        return super().__new__(cls, (major, minor))

    major = property(lambda self: self[0])
    minor = property(lambda self: self[1])


class _Properties:
    def __init__(self, doubts: Doubts, place: str, known: dict[str, Any]) -> None:
        self._doubts, self._place = doubts, place
        self.__dict__.update(known)

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        self._doubts.refuse(f"{self._place}.{name}")


def unknown_module(doubts: Doubts, name: str, known: dict[str, Any]) -> types.ModuleType:
    """A module that has what is known, and of everything else the name alone."""
    module = types.ModuleType(name)
    # A folder without files: that a part of it is absent is for the import system to say, and a doubt.
    module.__path__ = []

    def absent(attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        return UnknownObject(doubts, f"{name}.{attribute}")

    module.__dict__.update(known, __getattr__=absent)
    return module


def put_in_torch(doubts: Doubts, device: AbsentDevice) -> None:
    """Have torch.cuda say what is known of the device, and nothing else."""
    one: dict[str, Callable[..., Any]] = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda _: None,
        "init": lambda: None,
        "synchronize": lambda _=None: None,
        "manual_seed": lambda _: None,
        "manual_seed_all": lambda _: None,
        "get_device_capability": lambda _=None: device.capability,
        "get_device_properties": lambda _=None: device.torch_properties,
    }
    cuda = torch.cuda
    for name, value in list(vars(cuda).items()):
        if name in one:
            setattr(cuda, name, one[name])
        elif name == "_lazy_init" or (callable(value) and not name.startswith("_")):
            setattr(cuda, name, UnknownObject(doubts, f"torch.cuda.{name}"))
    torch.version.__class__ = _version_module(doubts)


def _version_module(doubts: Doubts) -> type[types.ModuleType]:
    """torch.version, whose `cuda` is that of the torch over there."""

    def cuda(module: types.ModuleType) -> Any:
        doubts.note("torch.version.cuda")
        return module.__dict__["cuda"]

    return type("VersionModule", (types.ModuleType,), {"cuda": property(cuda)})


def watch_surroundings(doubts: Doubts) -> None:
    """Note it from now on where a program looks at what is another machine's: packages, folders, variables."""

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        # Python's own library of functions is no library that may be absent.
        if event in _EVENTS and arguments[:1] != (None,):
            doubts.note(f"{event} {arguments[:1]!s}")

    class Missing:
        def find_spec(
            self, name: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
        ) -> importlib.machinery.ModuleSpec | None:
            doubts.note(f"the module {name} is not installed here")
            return None

    encode = os.environ.encodekey

    def encode_key(key: Any) -> Any:
        if isinstance(key, str) and key.startswith(_ENVIRONMENT):
            doubts.note(f"the variable {key}")
        return encode(key)

    def stat(path: Any, *arguments: Any, **options: Any) -> os.stat_result:
        text = str(path)
        if any(word in text for word in _IN_PATHS) and not text.startswith((sys.prefix, sys.base_prefix)):
            doubts.note(f"whether there is {text}")
        return _own_stat(path, *arguments, **options)

    sys.addaudithook(audit)
    sys.meta_path.append(Missing())
    os.environ.encodekey = encode_key
    os.stat = stat
