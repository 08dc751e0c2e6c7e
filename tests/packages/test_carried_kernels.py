"""What NVRTC and Triton compiled, kept and carried along: found again, never taken for something else."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from kforge.packages.runtime import carried_files, triton_kernels
from kforge.packages.runtime.nvrtc_kernels import KernelFolder, builtins_for

pytestmark = pytest.mark.cpu

PROGRAM = """
from cuda.core import Program, ProgramOptions

def compiled(arch, **more):
    options = ProgramOptions(arch=arch, **more)
    return Program(TEXT, code_type="c++", options=options).compile("cubin", name_expressions=("k<float>",))
"""


@dataclasses.dataclass
class Options:
    """As cuda.core's ProgramOptions, as far as it is used."""

    arch: str = "sm_90a"
    include_path: str = ""
    use_fast_math: bool = False
    name: str = "default_program"

    def as_bytes(self, backend: str) -> list[bytes]:
        assert backend == "nvrtc"
        parts = [f"-arch={self.arch}", f"--include-path={self.include_path}"]
        return [part.encode() for part in (*parts, *(["--use_fast_math"] if self.use_fast_math else []))]


@dataclasses.dataclass
class Object:
    """As cuda.core's ObjectCode."""

    code: bytes
    target: str
    symbol_mapping: dict[str, bytes]

    @staticmethod
    def from_cubin(code: bytes, name: str, symbol_mapping: dict[str, bytes]) -> Object:
        return Object(code, "cubin", symbol_mapping)

    @staticmethod
    def from_ptx(code: bytes, name: str, symbol_mapping: dict[str, bytes]) -> Object:
        return Object(code, "ptx", symbol_mapping)


class Nvrtc:
    """A compiler that counts, and can be away."""

    def __init__(self) -> None:
        self.compiled: list[str] = []
        self.is_there = True

    def module(self) -> types.ModuleType:
        nvrtc = self

        class Program:
            def __init__(self, code: str, code_type: str, options: Options) -> None:
                if not nvrtc.is_there:
                    raise RuntimeError("libnvrtc.so.13: cannot open shared object file")
                self.code, self.options = code, options

            def compile(self, target_type: str, name_expressions: Any = (), logs: Any = None) -> Object:
                if "no such" in self.code:
                    raise RuntimeError("error: identifier is undefined")
                nvrtc.compiled.append(f"{target_type} {self.options.arch}")
                symbols = {name: f"_Z{name}".encode() for name in name_expressions}
                return Object(f"{target_type} {self.options.arch} {self.code}".encode(), target_type, symbols)

        core = types.ModuleType("cuda.core")
        core.Program, core.ProgramOptions, core.ObjectCode = Program, Options, Object  # type: ignore[attr-defined]
        return core


@pytest.fixture
def nvrtc(monkeypatch: pytest.MonkeyPatch) -> Nvrtc:
    made = Nvrtc()
    top, core = types.ModuleType("cuda"), made.module()
    top.core = core  # type: ignore[attr-defined]
    top.__path__ = []
    monkeypatch.setitem(sys.modules, "cuda", top)
    monkeypatch.setitem(sys.modules, "cuda.core", core)
    return made


def loaded(folder: Path, text: str = "template<class T> void k(T*)", source: str = PROGRAM) -> tuple[Any, KernelFolder]:
    kernels = KernelFolder(folder)
    names: dict[str, Any] = {"TEXT": text, "__builtins__": builtins_for(source, kernels)}
    exec(compile(source, "program.py", "exec"), names)
    return names["compiled"], kernels


def test_a_kernel_is_compiled_once_for_all_processes(nvrtc: Nvrtc, tmp_path: Path) -> None:
    first = loaded(tmp_path)[0]("sm_90a")
    again = loaded(tmp_path)[0]("sm_90a", include_path="/usr/local/cuda-13.1/include")
    assert nvrtc.compiled == ["cubin sm_90a"]
    assert (again.code, again.target) == (first.code, "cubin")
    assert again.symbol_mapping == {"k<float>": b"_Zk<float>"}


@pytest.mark.parametrize("other", [{"arch": "sm_80"}, {"arch": "sm_90a", "use_fast_math": True}])
def test_another_gpu_or_option_is_another_kernel(nvrtc: Nvrtc, tmp_path: Path, other: dict[str, Any]) -> None:
    loaded(tmp_path)[0]("sm_90a")
    loaded(tmp_path)[0](**other)
    assert len(nvrtc.compiled) == 2


def test_another_text_is_another_kernel(nvrtc: Nvrtc, tmp_path: Path) -> None:
    loaded(tmp_path)[0]("sm_90a")
    assert b"other" in loaded(tmp_path, "other")[0]("sm_90a").code


def test_a_kernel_that_is_not_what_was_compiled_is_compiled_anew(nvrtc: Nvrtc, tmp_path: Path) -> None:
    whole = loaded(tmp_path)[0]("sm_90a").code
    (file,) = tmp_path.glob("*.cubin")
    file.write_bytes(whole[:5])
    assert loaded(tmp_path)[0]("sm_90a").code == whole
    assert file.read_bytes() == whole
    file.with_name(f"{file.name}.json").write_text("{")
    assert loaded(tmp_path)[0]("sm_90a").code == whole
    assert len(nvrtc.compiled) == 3


@pytest.mark.parametrize(
    "imports",
    ["import cuda.core as c\nProgram, ProgramOptions = c.Program, c.ProgramOptions",
     "import cuda.core\nProgram, ProgramOptions = cuda.core.Program, cuda.core.ProgramOptions",
     "from cuda import core as c  # cuda.core\nProgram, ProgramOptions = c.Program, c.ProgramOptions"],
)  # fmt: skip
def test_however_it_is_imported(nvrtc: Nvrtc, tmp_path: Path, imports: str) -> None:
    source = PROGRAM.replace("from cuda.core import Program, ProgramOptions", imports)
    loaded(tmp_path, source=source)[0]("sm_90a")
    nvrtc.is_there = False
    assert loaded(tmp_path, source=source)[0]("sm_90a").code.startswith(b"cubin sm_90a")


def test_nobody_else_in_the_process_is_given_another_class(nvrtc: Nvrtc, tmp_path: Path) -> None:
    loaded(tmp_path)[0]("sm_90a")
    import cuda.core

    cuda.core.Program("text", "c++", Options()).compile("cubin")
    assert len(nvrtc.compiled) == 2
    assert not hasattr(cuda.core.Program, "compile_anew")
    assert builtins_for("import torch", KernelFolder(tmp_path)) is None


@pytest.mark.parametrize(
    ("text", "more"),
    [
        ('#include "own.h"\nvoid k();', {}),
        ("#include <config.h>\nvoid k();", {"include_path": "/home/me/generated"}),
        ("#include <config.h>\nvoid k();", {"include_path": ["/usr/local/cuda/include", "generated"]}),
    ],
)
def test_what_takes_headers_of_its_own_is_compiled_each_time(
    nvrtc: Nvrtc, tmp_path: Path, text: str, more: dict[str, Any]
) -> None:
    for _ in range(2):
        loaded(tmp_path, text)[0]("sm_90a", **more)
    assert len(nvrtc.compiled) == 2
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("told", ["[]", "null", "{}", '{"sha256": 3, "symbols": 4}', "{"])
def test_a_description_that_is_none_is_as_good_as_no_kernel(nvrtc: Nvrtc, tmp_path: Path, told: str) -> None:
    whole = loaded(tmp_path)[0]("sm_90a").code
    (file,) = tmp_path.glob("*.json")
    file.write_text(told)
    assert loaded(tmp_path)[0]("sm_90a").code == whole


def test_names_are_part_of_what_is_checked(nvrtc: Nvrtc, tmp_path: Path) -> None:
    loaded(tmp_path)[0]("sm_90a")
    (file,) = tmp_path.glob("*.json")
    file.write_text(file.read_text().replace("_Zk", "_Zanother"))
    assert loaded(tmp_path)[0]("sm_90a").symbol_mapping == {"k<float>": b"_Zk<float>"}


def test_text_for_one_gpu_alone_is_compiled_for_no_other(nvrtc: Nvrtc, tmp_path: Path) -> None:
    compiled, kernels = loaded(tmp_path, "#ifdef __CUDA_ARCH_FEAT_SM90_ALL\nvoid k();\n#endif")
    compiled("sm_90a")
    reasons = [reason for _, reason in kernels.compile_for(["sm_100"])]
    assert len(reasons) == 2
    assert all("features of one GPU alone" in reason for reason in reasons)


def test_a_gpu_whose_own_features_are_asked_for_has_what_was_built_without_them(nvrtc: Nvrtc, tmp_path: Path) -> None:
    compiled, kernels = loaded(tmp_path)
    compiled("sm_90a")
    kernels.compile_for(["sm_100"])
    nvrtc.is_there = False
    assert loaded(tmp_path)[0]("sm_100a").code.startswith(b"cubin sm_100 ")


def test_what_does_not_compile_says_so_each_time(nvrtc: Nvrtc, tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(RuntimeError, match="identifier is undefined"):
            loaded(tmp_path, "no such thing")[0]("sm_90a")
    assert not list(tmp_path.glob("*.cubin"))


def test_without_a_compiler_later_gpus_have_ptx_and_others_an_error(nvrtc: Nvrtc, tmp_path: Path) -> None:
    compiled, kernels = loaded(tmp_path)
    compiled("sm_90a")
    assert kernels.compile_for(["sm_80", "sm_100"]) == []
    assert sorted(nvrtc.compiled) == ["cubin sm_100", "cubin sm_80", "cubin sm_90a", "ptx sm_90"]
    nvrtc.is_there = False
    compiled, _ = loaded(tmp_path)
    assert compiled("sm_80").code.startswith(b"cubin sm_80 ")
    assert compiled("sm_120").code.startswith(b"ptx sm_90 ")
    assert compiled("sm_120").target == "ptx"
    with pytest.raises(RuntimeError, match="libnvrtc"):
        compiled("sm_86")
    # With one, a GPU that nothing was built for has code of its own.
    nvrtc.is_there = True
    assert compiled("sm_120").target == "cubin"


def test_what_no_other_gpu_can_have_is_said(nvrtc: Nvrtc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled, kernels = loaded(tmp_path)
    compiled("sm_90a")
    nvrtc.is_there = False
    ((ptx, _), (target, reason)) = kernels.compile_for(["sm_80"])
    assert (ptx, target) == ("ptx", "cubin")
    assert reason.startswith("no cubin for sm_80: libnvrtc")


# -- Triton's cache ----------------------------------------------------------------------------------------------------


def triton_cache(folder: Path) -> Path:
    entry = folder / "ABC"
    entry.mkdir(parents=True)
    for name, data in {"k.cubin": b"\x7fELF", "k.json": b"{}", "k.ttir": b"text"}.items():
        (entry / name).write_bytes(data)
    paths = {name: str(entry / name) for name in ("k.cubin", "k.json", "k.ttir")}
    (entry / "__grp__k.json").write_text(json.dumps({"child_paths": paths}))
    (folder / "DEF").mkdir()
    (folder / "DEF" / "launcher.cpython-311.so").write_bytes(b"library")
    return folder


def test_tritons_kernels_are_found_where_they_were_put(tmp_path: Path) -> None:
    kernels = triton_kernels.read_kernels(triton_cache(tmp_path / "there"))
    assert sorted(kernels) == ["ABC/__grp__k.json", "ABC/k.cubin", "ABC/k.json", "DEF/launcher.cpython-311.so"]
    assert str(tmp_path).encode() not in b"".join(kernels.values())
    here = tmp_path / "here"
    (here / "ABC").mkdir(parents=True)  # as Triton leaves it that looked for a kernel
    triton_kernels.add_kernels(kernels, here)
    listed = json.loads((here / "ABC" / "__grp__k.json").read_text())["child_paths"]
    assert sorted(listed) == ["k.cubin", "k.json"]
    assert all(Path(path).parent == here / "ABC" and Path(path).is_file() for path in listed.values())


def test_what_triton_has_whole_stays(tmp_path: Path) -> None:
    here = triton_cache(tmp_path / "here")
    (here / "ABC" / "k.cubin").write_bytes(b"its own")
    triton_kernels.add_kernels(triton_kernels.read_kernels(triton_cache(tmp_path / "there")), here)
    assert (here / "ABC" / "k.cubin").read_bytes() == b"its own"


@pytest.mark.parametrize("damage", ["empty", "moved", "no group"])
def test_what_triton_has_in_part_is_made_whole(tmp_path: Path, damage: str) -> None:
    here, place = triton_cache(tmp_path / "here"), tmp_path / "here" / "ABC"
    if damage == "empty":
        (place / "k.cubin").write_bytes(b"")
    elif damage == "moved":
        text = (place / "__grp__k.json").read_text()
        (place / "__grp__k.json").write_text(text.replace("/here/", "/elsewhere/"))
    else:
        (place / "__grp__k.json").unlink()
    triton_kernels.add_kernels(triton_kernels.read_kernels(triton_cache(tmp_path / "there")), here)
    listed = json.loads((place / "__grp__k.json").read_text())["child_paths"]
    assert Path(listed["k.cubin"]).read_bytes() == b"\x7fELF"


# -- what a package carries --------------------------------------------------------------------------------------------


def carried(home: Path, kind: str, wanted: str, name: str, data: bytes) -> dict[str, Any]:
    path = f"built/{kind}/{name}"
    (home / path).parent.mkdir(parents=True, exist_ok=True)
    (home / path).write_bytes(data)
    return {"kind": kind, "for": wanted, "name": name, "path": path, "sha256": hashlib.sha256(data).hexdigest()}


def test_each_kind_is_put_where_it_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    monkeypatch.setattr(triton_kernels, "triton_key", lambda: "3.6.0-here")
    home, folder = tmp_path / "home", tmp_path / "folder"
    folder.mkdir()
    built = [
        carried(home, "library", carried_files.library_key(""), "own.so", b"own"),
        carried(home, "library", carried_files.library_key(""), "kernels/own.so", b"another"),
        carried(home, "library", carried_files.library_key(""), "newer.so", b"newer") | {"libc": "99.1"},
        carried(home, "library", "another-processor", "other.so", b"other"),
        carried(home, "nvrtc", "", "key.sm_90.cubin", b"kernel"),
        carried(home, "triton", "3.6.0-here", "ABC/k.cubin", b"kernel"),
        carried(home, "triton", "3.5.0-here", "DEF/k.cubin", b"kernel"),
    ]
    carried_files.bring_files(built, home, folder, "", "name")
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()
                  and not path.is_relative_to(home)) == [
        "folder/kernels/own.so", "folder/nvrtc/key.sm_90.cubin", "folder/own.so", "triton/ABC/k.cubin",
    ]  # fmt: skip


@pytest.mark.parametrize("kind", ["nvrtc", "triton", "library"])
def test_what_was_changed_is_not_brought(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    monkeypatch.setattr(triton_kernels, "triton_key", lambda: "here")
    wanted = {"nvrtc": "", "triton": "here", "library": carried_files.library_key("")}[kind]
    item = carried(tmp_path / "home", kind, wanted, "ABC/k.cubin" if kind == "triton" else "file", b"whole")
    (tmp_path / "home" / item["path"]).write_bytes(b"another")
    (tmp_path / "folder").mkdir()
    with pytest.raises(RuntimeError, match="is damaged: it is not what was built"):
        carried_files.bring_files([item], tmp_path / "home", tmp_path / "folder", "", "name")
    assert not (tmp_path / "triton").exists()
    assert not list((tmp_path / "folder").iterdir())


def test_what_is_missing_says_so(tmp_path: Path) -> None:
    item = carried(tmp_path / "home", "nvrtc", "", "key.sm_90.cubin", b"whole")
    (tmp_path / "home" / item["path"]).unlink()
    with pytest.raises(RuntimeError, match=r"cannot be read .*: install the package again"):
        carried_files.bring_files([item], tmp_path / "home", tmp_path, "", "name")


def test_a_cache_of_tritons_that_cannot_be_written_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "file"))
    monkeypatch.setattr(triton_kernels, "triton_key", lambda: "here")
    item = carried(tmp_path / "home", "triton", "here", "ABC/k.cubin", b"whole")
    carried_files.bring_files([item], tmp_path / "home", tmp_path, "", "name")
    assert "Triton compiles anew" in caplog.text
