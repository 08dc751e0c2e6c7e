"""What a candidate's text gives away before it runs: a tripwire that explains. Dynamic evidence decides the rest."""

from __future__ import annotations

import ast
from dataclasses import dataclass

_INTROSPECTION = {
    "_getframe": "sys._getframe",
    "_current_frames": "sys._current_frames",
    "currentframe": "inspect.currentframe",
    "get_objects": "gc.get_objects",
    "get_referrers": "gc.get_referrers",
    "f_back": "a frame's f_back",
    "f_globals": "a frame's f_globals",
    "f_locals": "a frame's f_locals",
    "tb_frame": "a traceback's tb_frame",
    "settrace": "sys.settrace",
    "setprofile": "sys.setprofile",
    "addaudithook": "sys.addaudithook",
}
_BINARY_LOADERS = ("from_cubin", "from_fatbin", "from_ltoir", "from_object")
_MODULE_LOADERS = ("cuModuleLoadData", "cuModuleLoadDataEx", "cuLibraryLoadData")
"""Honest behind a run-time compiler, whose output they load."""
_RUN_TIME_COMPILER = "nvrtcCompileProgram"
_OUR_OWN = ("kforge.worker", "kforge.emulation")
_LONGEST_WORD = 600
_MOST_BYTES = 256
_MOST_INTEGERS = 512


@dataclass(frozen=True)
class RuleFinding:
    rule: str
    what: str
    line: int


def syntax_error(source: str) -> str:
    """What is wrong with the text as Python; empty if nothing is."""
    try:
        ast.parse(source)
    except SyntaxError as error:
        text = (error.text or "").rstrip()
        caret = " " * max((error.offset or 1) - 1, 0) + "^"
        return f"line {error.lineno}: {error.msg}\n    {text}\n    {caret}"
    except (ValueError, RecursionError, MemoryError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def defines_class(source: str, name: str) -> bool:
    """Whether the module level binds that name at all."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef) and node.name == name:
            return True
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store):
            return True
        if isinstance(node, ast.alias) and name in (node.asname, node.name):
            return True
    return False


def classes(source: str) -> list[str]:
    return [node.name for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]


def scan(source: str) -> list[RuleFinding]:
    """Findings in the order of the text."""
    findings: list[RuleFinding] = []
    loaders = _BINARY_LOADERS if _RUN_TIME_COMPILER in source else (*_BINARY_LOADERS, *_MODULE_LOADERS)
    for node in ast.walk(ast.parse(source)):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Constant):
            what = _binary_constant(node.value)
            named = next((name for name in _OUR_OWN if isinstance(node.value, str) and name in node.value), "")
            if named:
                findings.append(RuleFinding("introspection", f"names {named}: a kernel stands on its own", line))
            if what:
                findings.append(RuleFinding("embedded_binary", what, line))
        elif isinstance(node, (ast.List, ast.Tuple)) and len(node.elts) > _MOST_INTEGERS:
            values = [item.value for item in node.elts if isinstance(item, ast.Constant)]
            if len(values) == len(node.elts) and all(isinstance(v, int) and 0 <= v < 256 for v in values):
                findings.append(RuleFinding("embedded_binary", f"a list of {len(values)} byte values", line))
        elif isinstance(node, ast.Attribute) and node.attr in loaders:
            findings.append(RuleFinding("embedded_binary", f"{node.attr} loads compiled code", line))
        elif isinstance(node, ast.Attribute) and _INTROSPECTION.get(node.attr):
            findings.append(RuleFinding("introspection", f"uses {_INTROSPECTION[node.attr]}", line))
        elif isinstance(node, (ast.Import, ast.ImportFrom)) and _imports_judge(node):
            findings.append(RuleFinding("introspection", "imports kforge: a kernel stands on its own", line))
        elif isinstance(node, ast.ImportFrom) and any(alias.name in loaders for alias in node.names):
            findings.append(RuleFinding("embedded_binary", "imports a function that loads compiled code", line))
        elif isinstance(node, ast.ImportFrom) and node.module in ("sys", "gc", "inspect"):
            for alias in node.names:
                if _INTROSPECTION.get(alias.name):
                    findings.append(RuleFinding("introspection", f"imports {_INTROSPECTION[alias.name]}", line))
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("inspect.stack", "inspect.trace"):
            findings.append(RuleFinding("introspection", f"calls {ast.unparse(node.func)}", line))
    return sorted(findings, key=lambda item: item.line)


def builds_extension(source: str) -> RuleFinding | None:
    """Where a program builds a torch extension: native code that no emulator runs as a kernel."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        if called.rpartition(".")[2] == "load_inline" or called.endswith("cpp_extension.load"):
            return RuleFinding("foreign_code", f"{called} builds a torch extension, which is not emulated", node.lineno)
    return None


def _imports_judge(node: ast.Import | ast.ImportFrom) -> bool:
    names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
    return any(name.split(".")[0] == "kforge" for name in names)


def _binary_constant(value: object) -> str:
    """What looks like a binary: bytes, or text without spaces, longer than any kernel needs; empty otherwise."""
    if isinstance(value, bytes):
        return f"a bytes literal of {len(value)} bytes" if len(value) > _MOST_BYTES else ""
    if isinstance(value, str):
        longest = max((len(word) for word in value.split()), default=0)
        if longest > _LONGEST_WORD and value.count("\\x") * 4 < longest:
            return f"a run of {longest} characters without a space"
        if value.count("\\x") > _MOST_BYTES:
            return f"{value.count(chr(92) + 'x')} escaped bytes"
    return ""
