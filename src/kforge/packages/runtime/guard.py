"""Which calls a program was verified for, and how another call differs from them.

Native code reads memory by address: it sees neither another dtype nor another layout. So a call is compared with those
that were verified before the program is run.
"""

from __future__ import annotations

import ctypes
import hashlib
import weakref
from typing import Any

import torch

_MOST_DIGESTS = 1024
_PLAIN = (torch.Tensor, torch.nn.Parameter)
_SCALARS = {"b": bool, "i": int, "f": float, "c": complex, "s": str}
"""Tags of a tree's leaves, and the types they stand for."""
_ALIGNMENT = 16
"""Bytes: what a vector load needs, and what torch's own allocations have."""


CAPTURED = (
    "a CUDA graph is being captured, and the program was not called with these shapes and tensors as they are now, in "
    "this thread: call it once, or use warmup(model=model), before the capture"
)


class Unlike(Exception):
    """A call that was not verified; its text is a clause that says how it differs."""


class Layout:
    """How a tensor was laid out in a verified call; a length below 0 stands for any of a range, -1 for the first."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.dtype: torch.dtype = getattr(torch, data["dtype"])
        self.shape: tuple[int, ...] = tuple(data["shape"])
        self.stride: tuple[int, ...] | None = None if data.get("stride") is None else tuple(data["stride"])
        """None: contiguous, whatever its lengths."""


class VerifiedCall:
    """One call that a program was verified for, with the ranges of its lengths."""

    def __init__(self, data: dict[str, Any], number: int) -> None:
        self.number = number
        self.tree: list[Any] = data["arguments"]
        self.leaves = leaves_of(self.tree)
        self.tensors = [Layout(item) for item in data["tensors"]]
        self.state = [Layout(item) for item in data["state"]]
        self.ranges = [(item["low"], item["high"], item["step"]) for item in data["ranges"]]
        self.bindings: list[dict[str, Any]] = data["bindings"]
        self.reference: str = data["reference"]
        self.ties: list[list[int]] = data["ties"]
        """Numbers of tensors of the module that are one and the same."""
        self.fixed: dict[int, str] = {int(number): digest for number, digest in data["fixed"].items()}
        """Tensors that the program has no place for, and the values that it was written for: a hash of each."""
        self.outputs = [Layout(item) for item in data["outputs"]]


class Guard:
    """Compares calls with those that were verified."""

    def __init__(self, verified: dict[str, Any]) -> None:
        self.calls = [VerifiedCall(data, number) for number, data in enumerate(verified["calls"])]
        self.device: str = verified["device"]
        self.training: bool | None = verified["training"]
        self.is_exact: bool = verified["exact_shapes"]
        self.names: list[str] = verified["parameters"]
        self.state_names: list[str] = [item["name"] for item in verified["state"]]
        self.tree: list[Any] = self.calls[0].tree
        self.is_flat = all(item[0] == "T" for item in self.tree[1])
        """Whether every argument is a tensor."""
        self._last = 0
        self._digests: dict[int, tuple[Any, ...]] = {}

    def fit(
        self, leaves: list[Any], state: list[torch.Tensor], training: bool | None
    ) -> tuple[VerifiedCall, list[Any], torch.device | None]:
        """(The verified call it is like, its leaves in the layout of that one, their device). Raises Unlike."""
        self._check_surroundings(training)
        self._check_kinds(leaves, state)
        where = self._device_of(leaves, state)
        refusals: dict[int, Unlike] = {}
        for number in (self._last, *(other for other in range(len(self.calls)) if other != self._last)):
            call = self.calls[number]
            try:
                fitted = self._fit(call, leaves)
                self._check_state(call, state)
            except Unlike as difference:
                refusals[number] = difference
            else:
                self._last = number
                return call, fitted, where
        raise refusals[0]

    def has_shapes_of(self, leaves: list[Any], state: list[torch.Tensor]) -> bool:
        """Whether a call has the shapes, dtypes and numbers of a verified one; all that a graph knows of it."""
        for call in self.calls:
            lengths: dict[int, int] = {}
            same = True
            for value, spec in zip(leaves, call.leaves):  # noqa: B905
                if spec[0] == "T":
                    layout = call.tensors[spec[1]]
                    same = same and isinstance(value, torch.Tensor) and value.dtype == layout.dtype
                    same = same and self._has_lengths(tuple(value.shape), layout.shape, call, lengths)
                else:
                    same = same and _is_like(value, spec)
            for tensor, layout in zip(state, call.state):  # noqa: B905
                same = same and tensor.dtype == layout.dtype and tuple(tensor.shape) == layout.shape
            if same:
                return True
        return False

    def _has_lengths(
        self, shape: tuple[int, ...], wanted: tuple[int, ...], call: VerifiedCall, lengths: dict[int, int]
    ) -> bool:
        return _is_within(shape, wanted, call.ranges, lengths) if self.is_exact else len(shape) == len(wanted)

    def check_tensors(self, state: list[Any]) -> None:
        """Unlike where the module has lost a tensor."""
        for name, tensor in zip(self.state_names, state):  # noqa: B905
            if not isinstance(tensor, torch.Tensor):
                raise Unlike(f"{name} is {_shown(tensor)}, not a tensor")

    def _check_surroundings(self, training: bool | None) -> None:
        if self.training is not None and training is not None and training is not self.training:
            modes = {True: "training", False: "evaluation"}
            raise Unlike(f"the module is in {modes[training]} mode, not in {modes[self.training]} mode")
        if torch.get_default_dtype() is not torch.float32:
            raise Unlike(f"torch's default dtype is {_name(torch.get_default_dtype())}, not float32")
        if torch.is_autocast_enabled(self.device):
            raise Unlike("autocast is on")
        stack: Any = torch.overrides._get_current_function_mode_stack
        if any(type(mode).__name__ != "DeviceContext" for mode in stack()):
            raise Unlike("a mode of torch.overrides is at work")

    def _check_kinds(self, leaves: list[Any], state: list[torch.Tensor]) -> None:
        """Unlike for tensors whose memory does not hold their values."""
        for tensor in (*leaves, *state):
            if isinstance(tensor, torch.Tensor) and (tensor.layout is not torch.strided or tensor._is_zerotensor()):
                raise Unlike(
                    f"there is a tensor that is {tensor.layout if tensor.layout is not torch.strided else 'all zeros'}"
                )
        for name, tensor in zip(self.state_names, state):  # noqa: B905
            if tensor.is_conj() or tensor.is_neg():
                raise Unlike(f"{name} is a conjugate or a negative that was not computed yet")

    def _device_of(self, leaves: list[Any], state: list[torch.Tensor]) -> torch.device | None:
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)] + state
        for tensor in tensors:
            if type(tensor) not in _PLAIN:
                raise Unlike(f"there is a {type(tensor).__qualname__} among the tensors")
        devices = sorted({str(tensor.device) for tensor in tensors})
        if len(devices) > 1:
            raise Unlike(f"the tensors are on several devices ({', '.join(devices)})")
        if devices and tensors[0].device.type != self.device:
            raise Unlike(f"the tensors are on {devices[0]}, not on {self.device}")
        return tensors[0].device if tensors else None

    def _fit(self, call: VerifiedCall, leaves: list[Any]) -> list[Any]:
        lengths: dict[int, int] = {}
        fitted = []
        for number, (value, spec) in enumerate(zip(leaves, call.leaves)):  # noqa: B905
            if spec[0] == "T":
                fitted.append(self._fit_tensor(value, call.tensors[spec[1]], self._leaf_name(number), call, lengths))
                continue
            if not _is_like(value, spec):
                raise Unlike(f"{self._leaf_name(number)} is {_shown(value)}, not {_describe(spec)}")
            fitted.append(value)
        return fitted

    def _leaf_name(self, number: int) -> str:
        """What a leaf is called: the argument it is, or belongs to."""
        before = 0
        for name, item in zip(self.names, self.tree[1]):  # noqa: B905
            before += len(leaves_of(item))
            if number < before:
                return name if item[0] not in ("l", "u", "d") else f"a part of {name}"
        return f"argument {number + 1}"

    def _fit_tensor(
        self, value: Any, layout: Layout, name: str, call: VerifiedCall, lengths: dict[int, int]
    ) -> torch.Tensor:
        """The tensor as it was laid out; of the same values in another layout, a copy."""
        if not isinstance(value, torch.Tensor):
            raise Unlike(f"{name} is {_shown(value)}, not a tensor")
        value = _resolved(value) if value.is_conj() or value.is_neg() else value
        shape = tuple(value.shape)
        same = self._has_lengths(shape, layout.shape, call, lengths)
        if value.dtype is not layout.dtype or not same:
            wanted = f"{_name(layout.dtype)} {_describe_shape(layout.shape, call.ranges)}"
            raise Unlike(f"{name} is {_name(value.dtype)} {shape}, not {wanted}")
        stride = layout.stride if self.is_exact else None
        if stride is None:
            return value if value.is_contiguous() and is_aligned(value) else _copied(value)
        if value.stride() != stride or not is_aligned(value):
            made = torch.empty_strided(shape, stride, dtype=value.dtype, device=value.device)
            made.copy_(value)
            return made
        fitted: torch.Tensor = value
        return fitted

    def _check_state(self, call: VerifiedCall, state: list[torch.Tensor]) -> None:
        for name, tensor, layout in zip(self.state_names, state, call.state):  # noqa: B905
            same = tuple(tensor.shape) == layout.shape or not self.is_exact
            if tensor.dtype is not layout.dtype or not same:
                wanted = f"{_name(layout.dtype)} {layout.shape}"
                raise Unlike(f"{name} is {_name(tensor.dtype)} {tuple(tensor.shape)}, not {wanted}")
            if self.is_exact and layout.stride is not None and tensor.stride() != layout.stride:
                raise Unlike(f"{name} has strides {tensor.stride()}, not {layout.stride}")
            if not is_aligned(tensor):
                raise Unlike(f"{name} does not begin at a multiple of {_ALIGNMENT} bytes")
        for first, *others in call.ties:
            if not all(_is_same_memory(state[first], state[other]) for other in others):
                names = ", ".join(self.state_names[number] for number in (first, *others))
                raise Unlike(f"{names} are not one tensor")
        for number, digest in call.fixed.items():
            if self._digest(state[number]) != digest:
                raise Unlike(f"{self.state_names[number]} has other values than those that the program was written for")

    def _digest(self, tensor: torch.Tensor) -> str:
        """A hash of a tensor's values; computed once for each state of a tensor."""
        known = self._digests.get(id(tensor))
        key = (tensor.data_ptr(), None if tensor.is_inference() else tensor._version)
        if known is not None and known[0]() is tensor and known[1] == key and key[1] is not None:
            return str(known[2])
        if is_capturing(tensor.device):
            raise Unlike(CAPTURED)
        digest = tensor_digest(tensor)
        if len(self._digests) > _MOST_DIGESTS:
            self._digests.clear()
        self._digests[id(tensor)] = (weakref.ref(tensor), key, digest)
        return digest


def is_capturing(device: torch.device) -> bool:
    """Whether what is launched now is written into a CUDA graph and not run."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def tensor_digest(tensor: torch.Tensor) -> str:
    """A hash of a tensor's dtype, shape and values."""
    data = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    content = ctypes.string_at(data.data_ptr(), data.numel() * data.element_size()) if data.numel() else b""
    head = f"{_name(tensor.dtype)} {tuple(tensor.shape)} "
    return hashlib.sha256(head.encode() + content).hexdigest()


def _resolved(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.resolve_conj().resolve_neg()


def _is_same_memory(one: torch.Tensor, two: torch.Tensor) -> bool:
    return one.data_ptr() == two.data_ptr() and one.shape == two.shape and one.stride() == two.stride()


def is_aligned(tensor: torch.Tensor) -> bool:
    """Whether a tensor begins where vectors may be loaded from."""
    return tensor.data_ptr() % _ALIGNMENT == 0


def leaves_of(tree: list[Any]) -> list[list[Any]]:
    """The leaves of a tree of arguments, in order."""
    if tree[0] in ("l", "u"):
        return [leaf for item in tree[1] for leaf in leaves_of(item)]
    if tree[0] == "d":
        return [leaf for _, item in tree[1] for leaf in leaves_of(item)]
    return [tree]


def flatten(tree: list[Any], value: Any, leaves: list[Any]) -> None:
    """Append a value's leaves; Unlike where its containers are others than the tree's."""
    tag = tree[0]
    if tag == "l" or tag == "u":
        kind = list if tag == "l" else tuple
        if not isinstance(value, kind) or len(value) != len(tree[1]):
            raise Unlike(f"an argument is {_shown(value)}, not a {kind.__name__} of {len(tree[1])}")
        for item, part in zip(tree[1], value):  # noqa: B905
            flatten(item, part, leaves)
    elif tag == "d":
        keys = [key[1] for key, _ in tree[1]]
        if not isinstance(value, dict) or list(value) != keys:
            raise Unlike(f"an argument is {_shown(value)}, not a dict of {keys}")
        for key, item in tree[1]:
            flatten(item, value[key[1]], leaves)
    else:
        leaves.append(value)


def unflatten(tree: list[Any], leaves: list[Any]) -> Any:
    """The value of a tree whose leaves are taken from the front of a list."""
    tag = tree[0]
    if tag == "l":
        return [unflatten(item, leaves) for item in tree[1]]
    if tag == "u":
        return tuple([unflatten(item, leaves) for item in tree[1]])
    if tag == "d":
        return {key[1]: unflatten(item, leaves) for key, item in tree[1]}
    return leaves.pop(0)


def _is_like(value: Any, spec: list[Any]) -> bool:
    """Whether a leaf that is no tensor is one that was verified."""
    tag = spec[0]
    if tag == "n":
        return value is None
    if tag == "D":
        return value is getattr(torch, spec[1])
    if tag == "*":
        kind = _SCALARS.get(spec[1])
        return kind is not None and type(value) is kind
    kind = _SCALARS[tag]
    if type(value) is not kind:
        return False
    wanted = kind(spec[1])
    return bool(value == wanted or (value != value and wanted != wanted))


def _is_within(
    shape: tuple[int, ...], wanted: tuple[int, ...], ranges: list[tuple[int, int, int]], lengths: dict[int, int]
) -> bool:
    if len(shape) != len(wanted):
        return False
    for own, length in zip(shape, wanted):  # noqa: B905
        if length >= 0:
            if own != length:
                return False
            continue
        low, high, step = ranges[-1 - length]
        if lengths.setdefault(length, own) != own or own not in range(low, high + 1, step):
            return False
    return True


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.clone(memory_format=torch.contiguous_format)


def _describe_shape(shape: tuple[int, ...], ranges: list[tuple[int, int, int]]) -> str:
    parts = [str(length) if length >= 0 else "{} to {}".format(*ranges[-1 - length][:2]) for length in shape]
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"


def _describe(spec: list[Any]) -> str:
    if spec[0] == "*":
        return f"a {_SCALARS[spec[1]].__name__}" if spec[1] in _SCALARS else "what was verified"
    return "None" if spec[0] == "n" else str(spec[1]) if spec[0] == "D" else repr(spec[1])


def _shown(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor {_name(value.dtype)} {tuple(value.shape)}"
    return " ".join(repr(value).split())[:80]


def _name(dtype: torch.dtype) -> str:
    return str(dtype).replace("torch.", "")
