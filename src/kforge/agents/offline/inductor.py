"""Inductor run on a graph for its text alone: nothing is compiled or loaded here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from kforge.agents.offline.recipe import Recipe, Unliftable, first_line

_ALWAYS = {
    # What is random stays torch's, so that both sides draw the same numbers under one seed.
    "fallback_random": True,
    "force_disable_caches": True,
    # The asserts name the layout of what library calls return.
    "size_asserts": True,
    "alignment_asserts": False,
    "graph_partition": False,
    "cpp_wrapper": False,
    "comment_origin": False,
    # One kernel for one task, and nothing that is measured while it is written.
    "combo_kernels": False,
    "shape_padding": False,
    "triton.multi_kernel": 0,
    "triton.cooperative_reductions": False,
    "triton.mix_order_reduction": False,
    "triton.num_decompose_k_splits": 0,
    "test_configs.max_mm_configs": 1,
}
_ENOUGH_PROGRAMS = 96


@dataclass(frozen=True)
class GeneratedCode:
    """What Inductor wrote."""

    code: str
    """A Python module: kernels as C++ or Triton text, and a function `call` that runs them."""
    constants: dict[str, torch.Tensor]
    """Tensors that `call` reads as globals."""
    flags: tuple[str, ...]
    """What its C++ must be compiled with: the vector instructions it is written for."""


class _TextWritten(BaseException):
    """Carries the text out of Inductor before it is compiled; no handler of Exception may catch it."""

    def __init__(self, code: str, constants: dict[str, torch.Tensor]) -> None:
        super().__init__()
        self.code = code
        self.constants = constants


def generate(graph: torch.fx.GraphModule, recipe: Recipe) -> GeneratedCode:
    """Lower a graph that `graph_export.export` made; Unliftable where Inductor gives up."""
    from torch._guards import TracingContext, tracing
    from torch._inductor import compile_fx, config

    examples = [node.meta["val"] for node in graph.graph.nodes if node.op == "placeholder"]
    modes = [value.fake_mode for value in examples if hasattr(value, "fake_mode")]
    if not modes:
        raise Unliftable("forward takes no tensor")
    known = {name: value for name, value in {**_ALWAYS, **recipe.options}.items() if _is_option(config, name)}
    chosen = ExitStack()
    try:
        with (
            torch.no_grad(),
            config.patch(known),
            tracing(TracingContext(modes[0])),
            _stop_before_compiling(),
            chosen,
        ):
            if recipe.row_limit:
                chosen.enter_context(_rows_in_registers(recipe.row_limit))
            if recipe.tile:
                chosen.enter_context(_one_tile(recipe.tile))
            compile_fx._recursive_joint_graph_passes(graph)
            compile_fx.compile_fx_inner(graph, examples, is_inference=True, graph_id=0, static_input_idxs=[])
            raise Unliftable("Inductor compiled the graph without writing it out")
    except _TextWritten as written:
        with config.patch(known):
            flags = _vector_flags() if all(value.device.type == "cpu" for value in examples) else ()
        return GeneratedCode(written.code, written.constants, flags)
    except Unliftable:
        raise
    except Exception as error:
        raise Unliftable(f"Inductor cannot lower it: {first_line(error)}") from error


@contextmanager
def _stop_before_compiling() -> Iterator[None]:
    from torch._inductor.graph import GraphLowering

    def stop(lowering: Any, wrapper: Any) -> Any:
        raise _TextWritten(wrapper.value, dict(lowering.constants))

    with _replace_attribute(GraphLowering, "_compile_to_module_lines", stop):
        yield


@contextmanager
def _rows_in_registers(limit: int) -> Iterator[None]:
    """Reductions of rows up to a length hold the whole row, whatever Inductor would do."""
    from torch._inductor.choices import InductorChoices

    original = InductorChoices.should_use_persistent_reduction

    def decide(features: Any, cooperative_reduction: bool) -> bool:
        hint, length = features.get_reduction_hint().name, features.reduction_numel
        if not hint.startswith("OUTER") and bool(length.is_number):
            return int(length) <= limit
        return original(features, cooperative_reduction)

    with _replace_attribute(InductorChoices, "should_use_persistent_reduction", staticmethod(decide)):
        yield


@contextmanager
def _one_tile(tile: tuple[int, ...]) -> Iterator[None]:
    """Matrix products get this block where there is a Triton kernel for them, and nothing is measured to find that."""
    from torch._inductor.select_algorithm import AlgorithmSelectorCache, TritonTemplateCaller
    from torch._inductor.template_heuristics.triton import BaseConfigHeuristic

    originally_prepare = BaseConfigHeuristic.preprocess_mm_configs
    originally_select = AlgorithmSelectorCache.__call__

    def prepare(self: Any, m: int, n: int, k: int, configs: list[Any], **options: Any) -> Any:
        chosen = type(configs[0])(*_cut_tile(tile, m, n))
        return originally_prepare(self, m, n, k, configs=[chosen], **options)

    def select(self: Any, name: str, choices: list[Any], *rest: Any, **options: Any) -> Any:
        own: list[Any] = [choice for choice in choices if isinstance(choice, TritonTemplateCaller)]
        return originally_select(self, name, (own or choices)[:1], *rest, **options)

    with (
        _replace_attribute(BaseConfigHeuristic, "preprocess_mm_configs", prepare),
        _replace_attribute(AlgorithmSelectorCache, "__call__", select),
    ):
        yield


def _cut_tile(tile: tuple[int, ...], rows: int, columns: int) -> tuple[int, ...]:
    """The block, cut until there are enough of it for the device's multiprocessors."""
    height, width, *rest = tile
    while (-(-int(rows) // height)) * (-(-int(columns) // width)) < _ENOUGH_PROGRAMS and max(height, width) > 32:
        height, width = (height // 2, width) if height >= width else (height, width // 2)
    return (height, width, *rest)


@contextmanager
def _replace_attribute(owner: type, name: str, value: Any) -> Iterator[None]:
    original = owner.__dict__[name]
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, original)


def _is_option(config: Any, name: str) -> bool:
    """Whether this version of torch knows the option: some come and go."""
    return name in config.get_config_copy()


def _vector_flags() -> tuple[str, ...]:
    from torch._inductor.cpu_vec_isa import pick_vec_isa

    isa = pick_vec_isa()
    if not isa:
        return ()
    return tuple(f"-D{macro}" for macro in isa.build_macro())
