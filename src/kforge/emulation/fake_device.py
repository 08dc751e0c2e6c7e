"""Tensors of the processor that are on another device, as far as a program can tell."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from kforge.emulation import storage_marks
from kforge.emulation.storage_marks import StorageMark

_MAY_MIX = frozenset(
    (
        *("copy_", "__setitem__", "index_put_", "index_put", "to", "type_as", "set_", "__set__", "__get__", "view_as"),
        *("expand_as", "reshape_as", "broadcast_tensors", "is_same_size", "result_type", "can_cast", "tensor_split"),
        *("resize_as_", "swap_tensors", "is_set_to", "_has_compatible_shallow_copy_type", "new_tensor", "ctc_loss"),
        *("_pack_padded_sequence", "lstm", "gru", "rnn_tanh", "rnn_relu", "__deepcopy__"),
    )
)
"""Functions that take tensors of the host beside the device's."""
_FROM_VALUES = ("tensor", "as_tensor", "asarray")
_BACKWARD = (torch.autograd.grad, torch.autograd.backward, torch.Tensor.backward)
_ENGINE = "_engine_run_backward"
"""torch's own name for what runs a backward pass."""
_DOUBLE = (torch.float64, torch.complex128)
_around = threading.local()
_default: list[str] = []
"""The device that a program wants its tensors on; empty where it never said."""


class FakeDevice(TorchFunctionMode):
    """Inside, `device` exists: tensors are made there, moved there, and say so."""

    def __init__(
        self, device: str, on_address_taken: Callable[[torch.Tensor], None] = lambda _: None, judged: bool = True
    ) -> None:
        """`on_address_taken` is called with each tensor whose address is taken.

        `judged`: as a program finds its surroundings; otherwise the device is where tensors go that say nothing.
        """
        super().__init__()
        self.judged = judged
        self.device = torch.device(device, 0)
        self._on_address_taken = on_address_taken
        self._follower = _Follower()
        self._start = "cpu" if judged else device
        self._answers: dict[Any, Callable[..., Any]] = {
            torch.Tensor.device: self._where,
            getattr(torch.Tensor, f"is_{device}"): storage_marks.is_on_device,
            torch.Tensor.is_cpu: lambda tensor: tensor.device.type == "cpu" and not storage_marks.is_on_device(tensor),
            torch.Tensor.get_device: lambda tensor: 0 if storage_marks.is_on_device(tensor) else tensor.get_device(),
            torch.Tensor.data_ptr: self._address,
            torch.Tensor.numpy: self._to_numpy,
            torch.Tensor.__array__: self._to_array,
            torch.Tensor.__dlpack__: self._to_dlpack,
            torch.Tensor.type: self._type,
            torch.Tensor.is_pinned: lambda tensor, *_: False,
            torch.Tensor.pin_memory: lambda tensor, *_: tensor,
        }
        if device == "cuda":
            self._answers[torch.Tensor.cuda] = self._to_cuda

    def __enter__(self) -> FakeDevice:
        _stack().append(self)
        self._follower.__enter__()  # type: ignore[no-untyped-call]
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *details: Any) -> None:
        super().__exit__(*details)  # type: ignore[no-untyped-call]
        self._follower.__exit__(*details)  # type: ignore[no-untyped-call]
        _stack().remove(self)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func is torch.device or func is torch._C._nn._parse_to:
            # Only a name so far.
            return func(*args, **kwargs)
        if func in _BACKWARD and hasattr(torch.autograd, _ENGINE):
            return self._run_backward(func, args, kwargs)
        _around.inside = getattr(_around, "inside", 0) + 1
        try:
            what = func if getattr(func, "__name__", "") != "__get__" else getattr(func, "__self__", func)
            answer = self._answers.get(what) if args else None
            return answer(*args, **kwargs) if answer is not None else self._run(func, args, kwargs)
        finally:
            _around.inside -= 1

    def _run_backward(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run autograd's engine inside once more: a program's own backward finds its surroundings as forward did."""
        engine = getattr(torch.autograd, _ENGINE)

        def run(*arguments: Any, **options: Any) -> Any:
            TorchFunctionMode.__enter__(self)  # type: ignore[no-untyped-call]
            try:
                return engine(*arguments, **options)
            finally:
                TorchFunctionMode.__exit__(self, None, None, None)  # type: ignore[no-untyped-call]

        setattr(torch.autograd, _ENGINE, run)
        try:
            return func(*args, **kwargs)
        finally:
            setattr(torch.autograd, _ENGINE, engine)

    # -- operators ---------------------------------------------------------------------------------------------------

    def _run(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name = getattr(func, "__name__", "")
        if func is torch.Tensor.to:
            args, kwargs = self._with_named_device(args, kwargs)
        if func is torch.Tensor.cpu:
            func, kwargs = torch.Tensor.to, {**kwargs, "device": "cpu"}
        wanted, kwargs = self._wanted_place(kwargs)
        if func is torch.Tensor.type_as:
            wanted = storage_marks.is_on_device(args[1])
        from_values = name in _FROM_VALUES and not (args and isinstance(args[0], torch.Tensor))
        operands = [] if from_values else list(storage_marks.tensors_in((args, kwargs)))
        known = [(tensor, storage_marks.mark_of(storage_marks.storage_of(tensor))) for tensor in operands]
        self._refuse_mixture(name, known, args)
        there = any(mark is not None and mark.there for _, mark in known) if operands else self._is_default()
        there = there if wanted is None else wanted
        self._refuse_generator(kwargs.get("generator"), there)
        result = func(*args, **kwargs)
        if isinstance(result, torch.Tensor) and wanted is not None and self._is_another(result, operands, wanted):
            result = result.clone()
        in_place = name == "__setitem__" or (name.endswith("_") and not name.startswith("__"))
        written = args[:1] if in_place else ()
        marks = [mark for _, mark in known if mark is not None]
        self._mark(storage_marks.tensors_in((result, written)), marks, operands, there, wanted is not None)
        return result

    def _mark(
        self,
        results: Iterable[Any],
        marks: list[StorageMark],
        operands: list[torch.Tensor],
        there: bool,
        explicit: bool,
    ) -> None:
        before = {id(storage_marks.storage_of(tensor)) for tensor in operands}
        for result in results:
            storage = storage_marks.storage_of(result)
            if storage is None:
                continue
            new = storage_marks.mark_of(storage) is None or (explicit and id(storage) not in before)
            mark = storage_marks.mark_for(storage)
            if new and id(storage) not in before:
                mark.there = there
            if mark.there and self.device.type == "mps" and result.dtype in _DOUBLE:
                raise TypeError(
                    "Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64. "
                    "Please use float32 instead."
                )
            mark.take(marks)

    def _is_another(self, result: torch.Tensor, operands: list[torch.Tensor], wanted: bool) -> bool:
        """Whether a result is an operand's own memory, in the other place."""
        storage = storage_marks.storage_of(result)
        return (
            storage is not None
            and any(storage_marks.storage_of(operand) is storage for operand in operands)
            and storage_marks.is_on_device(result) is not wanted
        )

    def _refuse_mixture(
        self, name: str, known: list[tuple[torch.Tensor, StorageMark | None]], args: tuple[Any, ...]
    ) -> None:
        if name in _MAY_MIX or not any(mark is not None and mark.there for _, mark in known):
            return
        if name == "__getitem__":
            if not storage_marks.is_on_device(args[0]) and any(
                storage_marks.is_on_device(item) for item in storage_marks.tensors_in(args[1])
            ):
                raise RuntimeError(
                    "indices should be either on cpu or on the same device as the indexed tensor (cpu): the tensor is "
                    f"the host's, and an index is on {self.device}"
                )
            return
        for tensor, mark in known:
            if tensor.dim() and (mark is None or not mark.there) and storage_marks.storage_of(tensor) is not None:
                raise RuntimeError(
                    f"Expected all tensors to be on the same device, but found at least two devices, {self.device} and "
                    f"cpu! (in {name}: the one of shape {tuple(tensor.shape)} is the host's; make it with "
                    f'device=x.device, or move it with .to("{self.device.type}"))'
                )

    def _refuse_generator(self, generator: Any, there: bool) -> None:
        if generator is not None and (str(generator.device) == str(self.device)) is not there:
            wanted = self.device.type if there else "cpu"
            raise RuntimeError(f"Expected a '{wanted}' device type for generator but found '{generator.device.type}'")

    # -- devices by name ---------------------------------------------------------------------------------------------

    def _wanted_place(self, kwargs: dict[str, Any]) -> tuple[bool | None, dict[str, Any]]:
        """Whether `device=` says the device (or the host; None if it says nothing), and what torch is told instead."""
        kwargs.pop("pin_memory", None)
        if kwargs.get("device") is None:
            return None, kwargs
        there = self.is_device(kwargs["device"])
        return there, {**kwargs, "device": "cpu"} if there else kwargs

    def is_device(self, device: Any) -> bool:
        """Whether a name is the device's; RuntimeError where there are not so many of them."""
        if isinstance(device, int) and self.device.type == "cuda":
            device = torch.device("cuda", device)
        named = torch.device(device) if isinstance(device, str) else device
        if not isinstance(named, torch.device) or named.type != self.device.type:
            return False
        if named.index not in (None, 0):
            raise RuntimeError(f"invalid device ordinal: there is one device, {self.device}, and no {named}")
        return True

    def _is_default(self) -> bool:
        return self.is_device(_default[-1] if _default else self._start)

    def _with_named_device(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """`tensor.to`'s arguments with the device, if there is one, by its name."""
        tensor, *rest = args
        first = rest[0] if rest else kwargs.get("other")
        if isinstance(first, torch.Tensor):
            kwargs.pop("other", None)
            given = [self.device if storage_marks.is_on_device(first) else first.device, first.dtype, *rest[1:]]
        elif isinstance(first, (str, torch.device, int)) and not isinstance(first, bool):
            given = rest
        else:
            return args, kwargs
        names = ("device", "dtype", "non_blocking", "copy")
        return (tensor,), {**kwargs, **dict(zip(names, given, strict=False))}

    # -- what tensors say of themselves ------------------------------------------------------------------------------

    def _where(self, tensor: torch.Tensor, *_: Any) -> torch.device:
        return self.device if storage_marks.is_on_device(tensor) else tensor.device

    def _type(self, tensor: torch.Tensor, *wanted: Any, **how: Any) -> Any:
        if wanted or how:
            return self._run(torch.Tensor.type, (tensor, *wanted), how)
        name = tensor.type()
        return name.replace("torch.", f"torch.{self.device.type}.") if storage_marks.is_on_device(tensor) else name

    def _address(self, tensor: torch.Tensor) -> int:
        self._on_address_taken(tensor)
        address = tensor.data_ptr()
        return storage_marks.device_address(address) if storage_marks.is_on_device(tensor) else address

    def _to_cuda(self, tensor: torch.Tensor, device: Any = None, *_: Any, **__: Any) -> Any:
        return self._run(torch.Tensor.to, (tensor,), {"device": self.device if device is None else device})

    def _to_numpy(self, tensor: torch.Tensor, *, force: bool = False) -> Any:
        if storage_marks.is_on_device(tensor):
            if not force:
                self._refuse_numpy()
            return tensor.detach().clone().numpy()
        return tensor.numpy(force=force)

    def _to_array(self, tensor: torch.Tensor, dtype: Any = None) -> Any:
        if storage_marks.is_on_device(tensor):
            self._refuse_numpy()
        return tensor.__array__(dtype=dtype)  # type: ignore[no-untyped-call]

    def _refuse_numpy(self) -> None:
        raise TypeError(
            f"can't convert {self.device} device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host "
            "memory first."
        )

    def _to_dlpack(self, tensor: torch.Tensor, **how: Any) -> Any:
        if storage_marks.is_on_device(tensor):
            raise RuntimeError(f"DLPack of a tensor on {self.device} is not emulated: take .cpu() first")
        return tensor.__dlpack__(**how)


class _Follower(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """What is computed from the device's memory is the device's, also where no function of torch's face computes it."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        storages = [storage_marks.storage_of(tensor) for tensor in storage_marks.tensors_in((args, kwargs))]
        marks = [mark for mark in map(storage_marks.mark_of, storages) if mark is not None]
        if marks:
            before = {id(storage) for storage in storages}
            for storage in map(storage_marks.storage_of, storage_marks.tensors_in(result)):
                if storage is not None and id(storage) not in before:
                    mark = storage_marks.mark_for(storage)
                    mark.there = mark.there or any(other.there for other in marks)
                    mark.take(marks)
        return result


def host_memory_fault(storage: Any) -> str:
    """What is wrong with memory that a kernel is given; empty where it is the device's, or nobody keeps places."""
    around, mark = _stack(), storage_marks.mark_of(storage)
    if not around or (mark is not None and mark.there):
        return ""
    if getattr(_around, "inside", 0) and mark is None:
        # Made inside a function of torch's, where nobody sees what is made.
        return ""
    device = around[-1].device.type
    return (
        "is memory of the host (its tensor's device is cpu), and a kernel reaches only the device's: make the tensor "
        f'with device="{device}" or device=x.device, or move it with .to("{device}")'
    )


def is_judged_code() -> bool:
    """Whether this thread runs a program's own code for a judge: what it may not change is then not its to change."""
    return any(around.judged for around in _stack())


def set_default_device(device: Any) -> None:
    """Set where tensors are made from now on, in place of torch's function."""
    _default[:] = [] if device is None else [str(torch.device(device) if not isinstance(device, int) else device)]


def get_default_device() -> torch.device:
    """Where tensors are made, in place of torch's function."""
    around = _stack()
    if not around:
        return torch.device("cpu")
    return around[-1].device if around[-1]._is_default() else torch.device("cpu")


def _stack() -> list[FakeDevice]:
    """The surroundings this thread is inside of, the innermost last."""
    if not hasattr(_around, "stack"):
        _around.stack = []
    stack: list[FakeDevice] = _around.stack
    return stack
