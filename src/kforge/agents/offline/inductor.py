"""Inductor run on a graph for its text alone: nothing is compiled or loaded here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from kforge.agents.offline.recipe import Unliftable, first_line

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
}


@dataclass(frozen=True)
class Generated:
    """What Inductor wrote."""

    code: str
    """A Python module: kernels as C++ text, and a function `call` that runs them."""
    constants: dict[str, torch.Tensor]
    """Tensors that `call` reads as globals."""
    flags: tuple[str, ...]
    """What its C++ must be compiled with: the vector instructions it is written for."""


class _Written(BaseException):
    """Carries the text out of Inductor before it is compiled; no handler of Exception may catch it."""

    def __init__(self, code: str, constants: dict[str, torch.Tensor]) -> None:
        super().__init__()
        self.code = code
        self.constants = constants


def generate(graph: torch.fx.GraphModule, options: dict[str, Any]) -> Generated:
    """Lower a graph that `exporting.export` made; Unliftable where Inductor gives up."""
    from torch._guards import TracingContext, tracing
    from torch._inductor import compile_fx, config

    examples = [node.meta["val"] for node in graph.graph.nodes if node.op == "placeholder"]
    modes = [value.fake_mode for value in examples if hasattr(value, "fake_mode")]
    if not modes:
        raise Unliftable("forward takes no tensor")
    known = {name: value for name, value in {**_ALWAYS, **options}.items() if _is_option(config, name)}
    try:
        with torch.no_grad(), config.patch(known), tracing(TracingContext(modes[0])), _stopped_before_compiling():
            compile_fx._recursive_joint_graph_passes(graph)
            compile_fx.compile_fx_inner(graph, examples, is_inference=True, graph_id=0, static_input_idxs=[])
            raise Unliftable("Inductor compiled the graph without writing it out")
    except _Written as written:
        with config.patch(known):
            return Generated(written.code, written.constants, _vector_flags())
    except Unliftable:
        raise
    except Exception as error:
        raise Unliftable(f"Inductor cannot lower it: {first_line(error)}") from error


@contextmanager
def _stopped_before_compiling() -> Iterator[None]:
    from torch._inductor.graph import GraphLowering

    def stop(lowering: Any, wrapper: Any) -> Any:
        raise _Written(wrapper.value, dict(lowering.constants))

    original = GraphLowering._compile_to_module_lines
    GraphLowering._compile_to_module_lines = stop  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        GraphLowering._compile_to_module_lines = original  # type: ignore[method-assign]


def _is_option(config: Any, name: str) -> bool:
    """Whether this version of torch knows the option: some come and go."""
    return name in config.get_config_copy()


def _vector_flags() -> tuple[str, ...]:
    from torch._inductor.cpu_vec_isa import pick_vec_isa

    isa = pick_vec_isa()
    if not isa:
        return ()
    return tuple(f"-D{macro}" for macro in isa.build_macro())
