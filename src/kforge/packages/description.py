"""What a package is made from: a run's winner, with its domain and its reference, as data that need no KForge.

The problem's own code is run here, to see what its module holds and what comes out of it; the program is not.
"""

from __future__ import annotations

import inspect
import keyword
import re
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kforge import kernelbench, live_module
from kforge.errors import UsageError
from kforge.execution.executor_names import LOCAL
from kforge.packages.runtime.guard import Layout, leaves_of, tensor_digest
from kforge.packages.runtime.reference_file import ReferenceFile
from kforge.packages.runtime.structure import Structure, structure_of
from kforge.run.result import RunResult
from kforge.spec.judging_platform import target_of
from kforge.types import Attempt, Candidate, Domain, Outcome, Problem, TensorLayout, Verdict
from kforge.worker import trees
from kforge.worker.arena import named_dtype
from kforge.worker.held_tensors import whole_state

FORMAT = 1
_Mode: Any = TorchDispatchMode
_MATCH = re.compile(r"(?P<source>\S+)(?: = (?P<name>\S+))?(?: with axes \((?P<axes>[\d, ]*)\))?")
"""A line of an evidence record that says which tensor of a program is which of the reference."""
LIVE_FILE = "reference_module.pkl"
REFERENCE_FILE = "reference.py"
_LIVE_TEXT = '''"""The captured module, as the reference of a problem."""

import pickle
from pathlib import Path


def _captured():
    with Path(__file__).with_name({file!r}).open("rb") as file:
        return pickle.load(file)


def Model():
    return _captured()[0]


def get_init_inputs():
    return []


def get_inputs():
    return _captured()[1]
'''


@dataclass(frozen=True)
class Description:
    """A package's contents, but for the texts that speak to people."""

    name: str
    """The package's name, as it is imported."""
    op: str
    """The operator's name, and the function's."""
    arguments: tuple[str, ...]
    """The function's arguments: forward's, then the module's tensors."""
    verified: dict[str, Any]
    program: str
    references: dict[str, str]
    """Texts by file name."""
    loaded: dict[str, ReferenceFile] = field(default_factory=dict, repr=False)
    """The same, ready to be run in this process."""
    files: dict[str, bytes] = field(default_factory=dict)
    """What else lies beside them."""
    dependencies: tuple[str, ...] = ()
    """Python packages it needs beside torch."""


@dataclass(frozen=True)
class Winner:
    """A program that was judged, as it is shipped."""

    problem: Problem
    candidate: Candidate
    platform: str
    verdict: Verdict
    where: str
    """The run and the step it is from."""
    executor: str = LOCAL

    @classmethod
    def of(cls, result: RunResult, attempt: Attempt) -> Winner:
        """An attempt of a run; UsageError where it has no program."""
        where = f"{result.run}-{attempt.move.chain + 1}.{attempt.move.step}"
        if attempt.candidate is None:
            raise UsageError(f"step {attempt.move.step} of {result.run} has no program")
        spec = result.spec
        return cls(spec.problem, attempt.candidate, spec.platform, attempt.verdict, where, spec.executor)


def describe(winner: Winner, name: str, op: str = "", gradients: str = "reference") -> Description:
    """The contents of a package; UsageError says why there can be none."""
    verdict, candidate, problem = winner.verdict, winner.candidate, winner.problem
    domain = verdict.domain
    if verdict.outcome is not Outcome.CORRECT:
        raise UsageError(f"{verdict.outcome.value}: a program that is not correct is no package")
    if domain is None or verdict.evidence is None:
        raise UsageError("what the program was verified for is not on record: judge it again with this version first")
    package = check_name(name, "the package")
    function = check_name(op, "the operator") if op else function_name(problem.name)
    # At the sizes that were judged, wherever that was.
    sizes = "emulator" if verdict.emulated else target_of(winner.platform, winner.executor, problem.form).device_class
    texts = _References(problem, sizes, domain)
    reference = texts.load(domain, package)
    model = reference.construct()
    state = {key.lstrip("="): value for key, value in whole_state(model).items()}
    bindings = _bindings(verdict.evidence.parameters, state, domain)
    parameters = _forward_names(model, len(domain.arguments[1]))
    ties = _ties(model, list(state))
    shared = {
        "reference": REFERENCE_FILE,
        "ties": ties,
        "fixed": _fixed_tensors(reference, domain, state, bindings, ties),
        "bindings": bindings,
    }
    described = []
    output: list[Any] = []
    for call in (domain, *_alike(domain, texts, reference, package)):
        data = {**_describe_call(call, state), **shared}
        output, data["outputs"] = _outputs(reference, data, list(state), domain)
        described.append(data)
    verified = {
        "kforge_package": FORMAT,
        "name": package,
        "op": function,
        "problem": problem.name,
        "problem_id": problem.id,
        "platform": winner.platform,
        "program_id": candidate.id,
        "device": domain.device,
        "dtype": problem.form.dtype,
        "training": domain.training,
        "backward": domain.backward,
        "gradients": gradients,
        "exact_shapes": domain.exact_shapes,
        "emulated": verdict.emulated,
        "parameters": parameters,
        "state": [{"name": key, "dtype": _dtype(value), "shape": list(value.shape)} for key, value in state.items()],
        "output": output,
        "calls": described,
    }
    return Description(
        name=package,
        op=function,
        arguments=tuple(_argument_names(parameters, list(state))),
        verified=verified,
        program=candidate.source,
        references={REFERENCE_FILE: texts.text},
        loaded={REFERENCE_FILE: reference},
        files=texts.files,
        dependencies=_dependencies(candidate.source, problem),
    )


def check_name(name: str, what: str) -> str:
    """A name that can be imported; UsageError if it is none."""
    plain = name.strip().replace("-", "_")
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", plain) or keyword.iskeyword(plain):
        raise UsageError(f"{what} cannot be called {name!r}: letters, digits and underscores make a name for Python")
    return plain


def function_name(problem: str) -> str:
    """What a problem's operator is called: 3_layer_norm -> layer_norm, RMSNorm -> rms_norm."""
    words = re.sub(r"^\d+_", "", problem)
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", words)
    plain = re.sub(r"\W+|_+", "_", words).strip("_").lower()
    return plain if plain.isidentifier() and not keyword.iskeyword(plain) else f"op_{plain}"


class _References:
    """The reference as a package holds it, and at the constants of other workloads."""

    def __init__(self, problem: Problem, device_class: str, domain: Domain) -> None:
        self._problem = problem
        self._sizes = problem.sizes_for(device_class)
        self.files: dict[str, bytes] = {}
        """What lies beside the text."""
        if problem.payload:
            self.files[LIVE_FILE] = live_module.read(problem.payload, problem.payload_hash)
        self.text = _LIVE_TEXT.format(file=LIVE_FILE) if problem.payload else self._text(domain)

    def _text(self, domain: Domain) -> str:
        sizes = {**self._sizes, **domain.constants}
        return kernelbench.without_declarations(kernelbench.with_sizes(self._problem.source, sizes, self._problem.path))

    def load(self, domain: Domain, package: str) -> ReferenceFile:
        """The reference at a call's constants, ready to be run in this process."""
        problem = self._problem
        if problem.payload:
            return _LiveReference(problem, problem.form.dtype, domain.training)
        name = f"kforge_export_{package}"
        return ReferenceFile(name, self._text(domain), REFERENCE_FILE, problem.form.dtype, domain.training)


class _LiveReference(ReferenceFile):
    """A captured module, from where it was captured to."""

    def __init__(self, problem: Problem, dtype: str, training: bool | None) -> None:
        super().__init__("kforge_export", "", "", dtype, training)
        self._problem = problem

    def _namespace(self) -> Any:
        module, inputs = live_module.restore(self._problem.payload, self._problem.payload_hash)

        return SimpleNamespace(Model=lambda: module, get_init_inputs=list, get_inputs=lambda: inputs)


def _bindings(lines: tuple[str, ...], state: dict[str, torch.Tensor], domain: Domain) -> list[dict[str, Any]]:
    """Which tensor of the program is which of the reference, and its layout; UsageError where that is unknown."""
    held = {item.name: item for item in domain.state}
    trained = {name for name, value in state.items() if domain.backward and value.is_floating_point()}
    bindings = []
    for line in lines:
        read = _MATCH.fullmatch(line)
        if read is None or read["source"] not in state:
            raise UsageError(f"the record says of the module's tensors what cannot be read: {line!r}")
        source, name = read["source"], read["name"] or read["source"]
        value, layout = state[source], held.get(name)
        if layout is None:
            raise UsageError(
                f"how the program lays out its {name} is not on record: it is a plain attribute, or changes in a call; "
                "have it registered as a parameter or a buffer"
            )
        axes = tuple(int(part) for part in (read["axes"] or "").split(",") if part.strip())
        axes = axes or tuple(range(value.dim()))
        straight = axes == tuple(range(value.dim())) and tuple(value.shape) == layout.shape
        binding: dict[str, Any] = {"name": name, "state": list(state).index(source), "axes": None}
        if not (straight and layout.dtype == _dtype(value) and layout.stride == value.stride()):
            if source in trained:
                raise UsageError(f"the program holds {source} otherwise than the reference: its gradient would be lost")
            binding |= {"axes": list(axes), **_layout_data(layout)}
        bindings.append(binding)
    return bindings


def _ties(model: torch.nn.Module, names: list[str]) -> list[list[int]]:
    """Tensors of the reference that are one and the same, by their numbers."""
    tensors = dict(model.named_parameters(remove_duplicate=False)) | dict(model.named_buffers(remove_duplicate=False))
    groups: dict[int, list[int]] = {}
    for number, name in enumerate(names):
        groups.setdefault(id(tensors[name]), []).append(number)
    return [group for group in groups.values() if len(group) > 1]


def _fixed_tensors(
    reference: ReferenceFile,
    domain: Domain,
    state: dict[str, torch.Tensor],
    bindings: list[dict[str, Any]],
    ties: list[list[int]],
) -> dict[str, str]:
    """Tensors that the reference uses and the program has no place for: their values are part of what was verified."""
    bound = {binding["state"] for binding in bindings}
    bound |= {number for group in ties if bound & set(group) for number in group}
    rest = [number for number in range(len(state)) if number not in bound]
    if not rest:
        return {}
    found = _structure(reference, domain, domain)
    unused = set(state) - set(found.names) if found is not None else set()
    values = list(state.items())
    return {str(number): tensor_digest(values[number][1]) for number in rest if values[number][0] not in unused}


def _alike(domain: Domain, texts: _References, reference: ReferenceFile, package: str) -> list[Domain]:
    """The further workloads with which the module computes the same as with the first, but for sizes.

    One with other constants in it is another module: a call's shapes do not tell which of them is meant.
    """
    wanted = _structure(reference, domain, domain)
    alike = []
    for call in domain.others:
        other = texts.load(call, package)
        found = _structure(other, domain, domain)
        same = wanted is not None and found is not None and (wanted.text, wanted.names) == (found.text, found.names)
        elsewhere = same and _structure(reference, call, domain)
        there = same and _structure(other, call, domain)
        same_there = elsewhere and there and elsewhere.text == there.text
        if same_there and _has_same_form(call, domain) and call.state == domain.state:
            alike.append(call)
    return alike


def _structure(reference: ReferenceFile, call: Domain, domain: Domain) -> Structure | None:
    """What a reference computes in a call like one that was verified."""
    tensors = [
        torch.empty_strided(item.shape, item.stride, dtype=named_dtype(item.dtype), device="meta")
        for item in call.tensors
    ]
    module = reference.construct()
    if domain.training is not None:
        module.train(domain.training)
    return structure_of(module, tuple(trees.unpack(_with_values(call.arguments), tensors)))


def _describe_call(call: Domain, state: dict[str, torch.Tensor]) -> dict[str, Any]:
    places = {place: -1 - number for number, span in enumerate(call.ranges) for place in span.axes}
    moving = {number for number, _ in places}
    tensors = []
    for number, item in enumerate(call.tensors):
        lengths = [places.get((number, axis), length) for axis, length in enumerate(item.shape)]
        stride = None if number in moving else list(item.stride)
        tensors.append({"dtype": item.dtype, "shape": lengths, "stride": stride})
    return {
        "arguments": call.arguments,
        "tensors": tensors,
        "ranges": [{"low": span.low, "high": span.high, "step": span.step} for span in call.ranges],
        "state": [_layout_of(value) for value in state.values()],
    }


def _outputs(
    reference: ReferenceFile, call: dict[str, Any], names: list[str], domain: Domain
) -> tuple[list[Any], list[dict[str, Any]]]:
    """The output's tree, and how its tensors are laid out, from a call without values."""
    tensors = [_empty(item, call["ranges"]) for item in call["tensors"]]
    state = [_empty(item, []) for item in call["state"]]
    before = [item._version for item in state]
    arguments = trees.unpack(_with_values(call["arguments"]), tensors)
    statistics = _ChangedStatistics()
    try:
        with torch.no_grad(), statistics:
            result = reference.run(arguments, names, state, domain.training)
    except Exception as error:
        raise UsageError(
            f"what comes out of the reference cannot be told without running it ({type(error).__name__}: "
            f"{str(error).splitlines()[0] if str(error) else ''}): an operator's shapes must follow from its inputs'"
        ) from None
    changed = [
        name
        for name, item, version in zip(names, state, before, strict=True)
        if item._version != version or any(item is other for other in statistics.tensors)
    ]
    if changed:
        raise UsageError(
            f"the reference changes its own {', '.join(changed)} in a call, as training mode does, and whether the "
            "program does so too was not verified: judge the problem in evaluation mode (self.eval() in Model's "
            "constructor), and export that"
        )
    tree, found = trees.pack(result)
    odd = [leaf for leaf in leaves_of(tree) if leaf[0] != "T"]
    if odd or not found:
        raise UsageError("the reference returns something else than tensors: that can be no operator")
    return tree, [_layout_of(item) for item in found]


class _ChangedStatistics(_Mode):  # type: ignore[misc]
    """Takes note of running statistics that an operator changes: its schema does not say so, nor does the tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.tensors: list[torch.Tensor] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if "batch_norm" in func.name():
            given = dict(zip((item.name for item in func._schema.arguments), args, strict=False)) | kwargs
            if given.get("training", given.get("train", False)):
                both = (given.get("running_mean"), given.get("running_var"))
                self.tensors += [item for item in both if item is not None]
        return func(*args, **kwargs)


def _with_values(tree: list[Any]) -> list[Any]:
    """A tree whose leaves are all values: of what may be any, one."""
    if tree[0] in ("l", "u"):
        return [tree[0], [_with_values(item) for item in tree[1]]]
    if tree[0] == "d":
        return ["d", [[key, _with_values(item)] for key, item in tree[1]]]
    if tree[0] != "*":
        return tree
    values: dict[str, list[Any]] = {"b": ["b", False], "i": ["i", 1], "f": ["f", 1.0], "s": ["s", ""]}
    if tree[1] not in values:
        raise UsageError("an argument of forward may be anything: that can be no operator's")
    return values[tree[1]]


def _has_same_form(call: Domain, first: Domain) -> bool:
    """Whether two calls differ in their values alone."""

    def form(tree: list[Any]) -> Any:
        if tree[0] in ("l", "u"):
            return tree[0], tuple(map(form, tree[1]))
        if tree[0] == "d":
            return tree[0], tuple((str(key), form(item)) for key, item in tree[1])
        return tree[1] if tree[0] == "*" else tree[0]

    return bool(form(call.arguments) == form(first.arguments))


def _forward_names(model: torch.nn.Module, count: int) -> list[str]:
    """What forward calls its arguments."""
    parameters = [
        item.name
        for item in inspect.signature(model.forward).parameters.values()
        if item.kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    ]
    return [parameters[number] if number < len(parameters) else f"argument_{number + 1}" for number in range(count)]


def _argument_names(parameters: list[str], state: list[str]) -> list[str]:
    """Names for a function's arguments, each once."""
    names: list[str] = []
    for wanted in (*parameters, *state):
        plain = re.sub(r"\W", "_", wanted)
        plain = plain if plain.isidentifier() and not keyword.iskeyword(plain) else f"a_{plain}"
        number, name = 2, plain
        while name in names or name == "strict":
            name, number = f"{plain}_{number}", number + 1
        names.append(name)
    return names


def _dependencies(source: str, problem: Problem) -> tuple[str, ...]:
    """Python packages that a program needs beside torch."""
    found = ["cloudpickle"] if problem.payload else []
    found += ["triton"] if re.search(r"^\s*(import|from) triton\b", source, re.M) else []
    found += ["cuda-core"] if re.search(r"^\s*(import|from) cuda\.", source, re.M) else []
    found += ["pyopencl"] if re.search(r"^\s*(import|from) pyopencl\b", source, re.M) else []
    return tuple(found)


def _empty(data: dict[str, Any], ranges: list[dict[str, Any]]) -> torch.Tensor:
    layout = Layout(data)
    shape = tuple(length if length >= 0 else ranges[-1 - length]["low"] for length in layout.shape)
    if layout.stride is None:
        return torch.empty(shape, dtype=layout.dtype, device="meta")
    return torch.empty_strided(shape, layout.stride, dtype=layout.dtype, device="meta")


def _layout_of(tensor: torch.Tensor) -> dict[str, Any]:
    return {"dtype": _dtype(tensor), "shape": list(tensor.shape), "stride": list(tensor.stride())}


def _layout_data(layout: TensorLayout) -> dict[str, Any]:
    return {"dtype": layout.dtype, "shape": list(layout.shape), "stride": list(layout.stride)}


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
