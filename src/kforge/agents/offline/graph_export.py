"""A module as one functional graph with its parameters as inputs, and the interface around it."""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass
from typing import Any, cast

import torch

# A decomposition of max pooling looks this up by name and does not import it.
import torch._inductor.lowering
from torch.export.graph_signature import (
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    OutputKind,
    TensorArgument,
)
from torch.utils import _pytree as pytree

from kforge.agents.offline import constants
from kforge.agents.offline.interface import DenseLayout, Input, Interface, StateTensor
from kforge.agents.offline.loaded_problem import LoadedReference
from kforge.agents.offline.recipe import Unliftable, first_line
from kforge.worker.held_tensors import module_tensors

_MUTATIONS = (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION)


@dataclass(frozen=True)
class ExportedGraph:
    """A graph that Inductor can lower, once."""

    graph: torch.fx.GraphModule
    interface: Interface


def export(loaded: LoadedReference, apart: tuple[str, ...] = ()) -> ExportedGraph:
    """Trace the module, with what `apart` names taken apart; Unliftable with the tracer's reason where it cannot."""
    try:
        program = _trace(loaded, apart)
    except Exception as error:
        raise Unliftable(f"torch.export cannot trace it: {first_line(error)}") from error
    signature = program.graph_signature
    graph = program.graph_module
    _refuse_unknown_sizes(graph)
    results = _keep_mutations_inside(graph, signature)
    _drop_scalars(graph)
    made = constants.Maker(loaded)
    reads: dict[str, str] = {}
    for spec in signature.input_specs:
        name = getattr(spec.arg, "name", "")
        if spec.kind is InputKind.PARAMETER or (spec.kind is InputKind.BUFFER and spec.persistent):
            reads[name] = str(spec.target)
        elif spec.kind in (InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
            made.add(name, str(spec.target), program.constants[str(spec.target)])
        elif spec.kind is not InputKind.USER_INPUT:
            raise Unliftable(f"the graph takes a {spec.kind.name.lower()}, which no plain program can hold")
    parameters = _parameters(loaded)
    interface = Interface(
        parameters=parameters,
        inputs=_inputs(loaded, parameters, signature, graph),
        state=(*_state(loaded.module), *_transient_state(made)),
        reads={**reads, **made.transient},
        constants=made.expressions,
        constant_layouts=made.layouts,
        result=_result(program.call_spec.out_spec, results),
        copied=_copied_outputs(loaded, results),
        definitions=made.definitions,
    )
    return ExportedGraph(graph, interface)


def _trace(loaded: LoadedReference, apart: tuple[str, ...]) -> torch.export.ExportedProgram:
    from torch._inductor import config
    from torch._inductor.decomposition import select_decomp_table
    from torch.nn.attention import SDPBackend, sdpa_kernel

    fused = [SDPBackend.FLASH_ATTENTION, *([SDPBackend.EFFICIENT_ATTENTION] if loaded.phantoms else [])]
    backends = [SDPBackend.MATH] if "attention" in apart else [*fused, SDPBackend.MATH]
    with torch.no_grad(), sdpa_kernel(backends), config.patch(fallback_random=True):
        program = torch.export.export(loaded.module, loaded.inputs, strict=False)
        # Dropout stays whole: taken apart, it would draw other numbers than eager does.
        table = {op: rule for op, rule in select_decomp_table().items() if "dropout" not in str(op)}
        if "variance" in apart:
            table[torch.ops.aten.var_mean.correction] = _two_sums
        return cast(torch.export.ExportedProgram, program.run_decompositions(table))


def _two_sums(
    x: torch.Tensor, dim: list[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Variance and mean as two sums whose results are used where they are needed, so that one loop over rows does."""
    axes = dim if dim else list(range(x.dim()))
    count = math.prod(x.shape[axis] for axis in axes)
    mean = x.sum(axes, keepdim=True) / count
    centred = x - mean
    free = max(0.0, count - (1.0 if correction is None else correction))
    variance = (centred * centred).sum(axes, keepdim=keepdim) / free
    return variance, mean if keepdim else mean.squeeze(axes)


def _refuse_unknown_sizes(graph: torch.fx.GraphModule) -> None:
    for node in graph.graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and not all(isinstance(length, int) for length in value.shape):
            raise Unliftable(f"the size of a result depends on the data ({node.name}): one program cannot fit them all")


def _drop_scalars(graph: torch.fx.GraphModule) -> None:
    """Arguments that are no tensors are part of the trace already; the guard in forward checks them."""
    for node in list(graph.graph.nodes):
        if node.op == "placeholder" and not isinstance(node.meta.get("val"), torch.Tensor) and not node.users:
            graph.graph.erase_node(node)
    graph.recompile()


def layout_of(tensor: torch.Tensor) -> DenseLayout:
    if tensor.layout != torch.strided:
        raise Unliftable(f"it uses a tensor of layout {tensor.layout}")
    return DenseLayout.of(tensor)


def _keep_mutations_inside(graph: torch.fx.GraphModule, signature: ExportGraphSignature) -> list[Any]:
    """Write changed buffers back at the end of the graph; what is left to return, in the user's order."""
    output = next(node for node in graph.graph.nodes if node.op == "output")
    inputs = {node.name: node for node in graph.graph.nodes if node.op == "placeholder"}
    by_target = {str(spec.target): spec.arg.name for spec in signature.input_specs if spec.target is not None}
    kept = []
    for spec, value in zip(signature.output_specs, output.args[0], strict=True):
        if spec.kind in _MUTATIONS:
            name = by_target.get(str(spec.target), str(spec.target))
            with graph.graph.inserting_before(output):
                copy = graph.graph.call_function(torch.ops.aten.copy_.default, (inputs[name], value))
                copy.meta["val"] = inputs[name].meta["val"]
        elif spec.kind is OutputKind.USER_OUTPUT:
            kept.append(value)
        else:
            raise Unliftable(f"the graph returns a {spec.kind.name.lower()}")
    # A node is returned once; the result's text may name it twice.
    output.args = (tuple(dict.fromkeys(value for value in kept if isinstance(value, torch.fx.Node))),)
    graph.recompile()
    return kept


def _parameters(loaded: LoadedReference) -> tuple[str, ...]:
    """Names for forward's arguments: its own where it has them."""
    names: list[str] = []
    for parameter in inspect.signature(loaded.module.forward).parameters.values():
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            names.append(parameter.name)
    names = names[: len(loaded.inputs)]
    return (*names, *(f"argument{i}" for i in range(len(names), len(loaded.inputs))))


def _inputs(
    loaded: LoadedReference, parameters: tuple[str, ...], signature: ExportGraphSignature, graph: torch.fx.GraphModule
) -> tuple[Input, ...]:
    specs = [spec.arg for spec in signature.input_specs if spec.kind is InputKind.USER_INPUT]
    leaves, _ = pytree.tree_flatten_with_path(loaded.inputs)
    inputs = []
    for spec, (path, value) in zip(specs, leaves, strict=True):
        first = path[0]
        assert isinstance(first, pytree.SequenceKey)
        access = parameters[first.idx] + "".join(map(str, path[1:]))
        if isinstance(spec, TensorArgument):
            inputs.append(Input(spec.name, access, layout_of(value)))
        elif isinstance(spec, ConstantArgument) and isinstance(value, (bool, int, float, str, type(None))):
            inputs.append(Input(spec.name, access, None, constants.literal(value)))
        else:
            raise Unliftable(f"forward takes a {type(value).__name__}")
    return tuple(inputs)


def _state(module: torch.nn.Module) -> tuple[StateTensor, ...]:
    first: dict[int, str] = {}
    tensors = []
    for name, value in module.state_dict(keep_vars=True).items():
        if not isinstance(value, torch.Tensor):
            raise Unliftable(f"the module's state holds {name!r}, which is no tensor")
        leader = first.setdefault(id(value), name)
        parameter = isinstance(value, torch.nn.Parameter)
        tensors.append(StateTensor(name, layout_of(value), parameter, leader if leader != name else ""))
    return tuple(tensors)


def _transient_state(made: constants.Maker) -> tuple[StateTensor, ...]:
    return tuple(
        StateTensor(target, made.layouts[name], parameter=False, persistent=False)
        for name, target in made.transient.items()
    )


def _result(spec: Any, results: list[Any]) -> str:
    """The text of forward's result."""
    places = list(dict.fromkeys(value for value in results if isinstance(value, torch.fx.Node)))
    leaves = [
        f"{{{places.index(value)}}}" if isinstance(value, torch.fx.Node) else constants.literal(value)
        for value in results
    ]
    return _structure(pytree.tree_unflatten([_Leaf(text) for text in leaves], spec))


@dataclass(frozen=True)
class _Leaf:
    text: str


def _structure(value: Any) -> str:
    if isinstance(value, _Leaf):
        return value.text
    if isinstance(value, tuple):
        return "(" + "".join(f"{_structure(item)}, " for item in value) + ")"
    if type(value) is list:
        return "[" + ", ".join(map(_structure, value)) + "]"
    if isinstance(value, dict):
        return "{{" + ", ".join(f"{key!r}: {_structure(item)}" for key, item in value.items()) + "}}"
    raise Unliftable(f"forward returns a {type(value).__name__}")


def _copied_outputs(loaded: LoadedReference, results: list[Any]) -> tuple[int, ...]:
    """Which outputs are an input of the graph, or may be folded into one, although eager returns fresh memory."""
    places = list(dict.fromkeys(value for value in results if isinstance(value, torch.fx.Node)))
    shared = _shared_outputs(loaded)
    fresh = set()
    for value, taken in zip(results, shared, strict=False):
        if isinstance(value, torch.fx.Node) and not taken:
            fresh.add(places.index(value))
    return tuple(sorted(fresh))


def _shared_outputs(loaded: LoadedReference) -> list[bool]:
    """For each leaf of forward's result, whether it lies in memory that was there before."""
    if loaded.phantoms is not None:
        try:
            return loaded.phantoms.shared_outputs(loaded.module, loaded.inputs)
        except Exception as error:
            raise Unliftable(f"the reference's forward raises {first_line(error)}") from error
    torch.manual_seed(0)
    own = [tensor for _, tensor in module_tensors(loaded.module)]
    held = {id(tensor): tensor.detach().clone() for tensor in own}
    inputs = [leaf.clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in pytree.tree_leaves(loaded.inputs)]
    arguments = pytree.tree_unflatten(inputs, pytree.tree_structure(loaded.inputs))
    try:
        with torch.no_grad():
            outputs = pytree.tree_leaves(loaded.module(*arguments))
            for tensor in own:
                if not torch.equal(tensor, held[id(tensor)]):
                    tensor.copy_(held[id(tensor)])
    except Exception as error:
        raise Unliftable(f"the reference's forward raises {first_line(error)}") from error
    sources = [*(leaf for leaf in inputs if isinstance(leaf, torch.Tensor)), *own]
    taken = {tensor.untyped_storage().data_ptr() for tensor in sources}
    return [isinstance(output, torch.Tensor) and output.untyped_storage().data_ptr() in taken for output in outputs]
