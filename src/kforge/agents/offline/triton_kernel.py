"""One of Inductor's Triton kernels, read and made readable: a plain function, and what is known of its launch."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from kforge.agents.offline.recipe import Unliftable

_DECORATOR = "triton_heuristics."
_PREFIX = re.compile(r"^triton_(?:poi|red|per|tem|spl|mix|for|coo)_")
HELPER = re.compile(r"\btriton_helpers\.(\w+)")
"""A call of Inductor's runtime."""
_EFFECTS = re.compile(r"atomic|inline_asm|barrier|tl\.store")
_COMPUTES = re.compile(r"^ *(?:tmp|acc)\w* *[+*|&]?= (?!tl\.load\()", re.MULTILINE)
_LONGEST_NAME = 48


@dataclass(frozen=True)
class TritonKernel:
    """A kernel as `call` knows it."""

    name: str
    """What `call` calls it."""
    kind: str
    """pointwise, reduction, persistent_reduction or template."""
    text: str
    """The function, without its decorators."""
    helpers: tuple[str, ...]
    """Functions of its own that it calls, as text."""
    parameters: tuple[str, ...]
    """What `call` gives it, in order, the dropped ones among them."""
    dropped: frozenset[str]
    """Parameters that its body sets itself."""
    blocks: tuple[str, ...]
    """Block sizes that the launch chooses: XBLOCK, R0_BLOCK."""
    numels: dict[str, int]
    """x -> how many elements there are along it."""
    unmasked: frozenset[str]
    """Blocks that it takes for granted to divide their dimension."""
    grid: str
    """Inductor's name for how the grid follows from the blocks."""
    reduction: str = ""
    """Where the reduced elements lie: INNER, OUTER, DEFAULT."""
    launch: tuple[int, int] = (0, 0)
    """Warps and stages, where Inductor fixed them."""

    @property
    def uses(self) -> tuple[str, ...]:
        """Inductor's helpers that it calls."""
        return tuple(dict.fromkeys(HELPER.findall("\n".join((self.text, *self.helpers)))))

    @property
    def only_copies(self) -> bool:
        """Whether it changes the layout of its data and nothing else."""
        return not _COMPUTES.search(self.text)


def short_name(name: str) -> str:
    """triton_poi_fused_add_gelu_0 -> fused_add_gelu_0, at most 48 characters long."""
    name = _PREFIX.sub("", name)
    if len(name) <= _LONGEST_NAME:
        return name
    head, _, number = name.rpartition("_")
    return f"{head[:40].rstrip('_')}_{number}"


def read(name: str, code: str) -> TritonKernel:
    """A kernel from the module that Inductor wrote for it."""
    tree = ast.parse(code)
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    main = next((node for node in functions if _heuristics(node) is not None), None)
    if main is None:
        raise Unliftable(f"the kernel {name} is of no known form")
    heuristics = _heuristics(main)
    assert heuristics is not None
    kind = ast.unparse(heuristics.func).removeprefix(_DECORATOR)
    options = {word.arg or "": word.value for word in heuristics.keywords}
    meta = _entries(options.get("inductor_meta"))
    signature = ast.literal_eval(_entries(options["triton_meta"])["signature"])
    lines = code.splitlines()
    constants = _constants(main)
    fixed = _entries(_entries(options["triton_meta"]).get("constants"))
    blocks = tuple(word for word, form in signature.items() if form == "constexpr" and word not in fixed)
    parameters = [argument.arg for argument in main.args.args if argument.arg not in blocks]
    parameters += ast.literal_eval(meta["extra_launcher_args"]) if "extra_launcher_args" in meta else []
    dropped = frozenset(parameter for parameter in parameters if parameter in constants)
    numels = {
        dimension: constants[f"{dimension}numel"]
        for dimension in ("x", "y", "z", "r0_", "r1_")
        if f"{dimension}numel" in constants
    }
    return TritonKernel(
        name=name,
        kind=kind,
        text=_clean(main, lines, dropped),
        helpers=tuple(_text(node, lines) for node in functions if node is not main),
        parameters=tuple(parameters),
        dropped=dropped,
        blocks=blocks,
        numels=numels,
        unmasked=frozenset(block for block in blocks if f"tl.full([{block}], True, tl.int1)" in code),
        grid=ast.literal_eval(meta["grid_type"]) if "grid_type" in meta else "",
        reduction=ast.unparse(options["reduction_hint"]).rpartition(".")[2] if "reduction_hint" in options else "",
        launch=(_number(options.get("num_warps")), _number(options.get("num_stages"))),
    )


def _heuristics(function: ast.FunctionDef) -> ast.Call | None:
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func).startswith(_DECORATOR):
            return decorator
    return None


def _entries(node: ast.expr | None) -> dict[str, ast.expr]:
    """A dictionary's values by key; those may be more than literals."""
    if not isinstance(node, ast.Dict):
        return {}
    return {
        str(key.value): value
        for key, value in zip(node.keys, node.values, strict=True)
        if isinstance(key, ast.Constant)
    }


def _number(node: ast.expr | None) -> int:
    return int(ast.literal_eval(node)) if node is not None else 0


def _constants(function: ast.FunctionDef) -> dict[str, int]:
    """Names that the body sets to a number before anything else."""
    numbers = {}
    for node in function.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and _is_integer(node.value):
            numbers[node.targets[0].id] = ast.literal_eval(node.value)
    return numbers


def _is_integer(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int


def _clean(function: ast.FunctionDef, lines: list[str], dropped: frozenset[str]) -> str:
    """The function's text without decorators, without parameters it sets itself, without what nothing reads."""
    arguments = [argument for argument in function.args.args if argument.arg not in dropped]
    gone: set[int] = set()
    for node in _dead_assignments(function):
        gone |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    kept = [
        lines[number - 1].rstrip()
        for number in range(function.body[0].lineno, (function.end_lineno or 0) + 1)
        if number not in gone
    ]
    head = f"def {short_name(function.name)}({', '.join(map(_parameter, arguments))}):"
    return "\n".join((head, *_without_double_blanks(kept)))


def _parameter(argument: ast.arg) -> str:
    return f"{argument.arg}: {ast.unparse(argument.annotation)}" if argument.annotation else argument.arg


def _without_double_blanks(lines: list[str]) -> list[str]:
    return [line for place, line in enumerate(lines) if line or (place and lines[place - 1])]


def _dead_assignments(function: ast.FunctionDef) -> list[ast.stmt]:
    """Assignments whose result nothing reads, and those that only fed them."""
    dead: list[ast.stmt] = []
    while True:
        read_names = _names_read(function, dead)
        more = [
            node
            for node in ast.walk(function)
            if isinstance(node, (ast.Assign, ast.AnnAssign))
            and node not in dead
            and not (_names_set(node) & read_names)
            and not _EFFECTS.search(ast.unparse(node))
        ]
        if not more:
            return dead
        dead += more


def _names_set(node: ast.Assign | ast.AnnAssign) -> set[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return {part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)}


def _names_read(function: ast.FunctionDef, without: list[ast.stmt]) -> set[str]:
    skipped = {id(part) for node in without for part in ast.walk(node)}
    names = set()
    for node in ast.walk(function):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            names.add(node.id)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return names


def _text(function: ast.FunctionDef, lines: list[str]) -> str:
    return "\n".join(lines[function.lineno - 1 : function.end_lineno])
