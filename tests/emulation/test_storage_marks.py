"""Tensors on an emulated device: where they are, what they may be mixed with, and what a result was made of."""

from __future__ import annotations

import contextlib
import functools
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from kforge.emulation import cuda, launch_trace, metal, storage_marks, torch_cuda, torch_mps, torch_patches  # noqa: E402
from kforge.emulation.kernel_launch import KernelFault  # noqa: E402

nn = torch.nn
COPY = "kernel void copy(device const float* x, device float* y, uint i [[thread_position_in_grid]]) { y[i] = x[i]; }"
ADD = 'extern "C" __global__ void add(float* y) { y[threadIdx.x] += 1; }'


@functools.cache
def copying() -> Any:
    return metal.compile_shader(COPY)


@contextlib.contextmanager
def on_cuda() -> Iterator[Any]:
    """As a judged program finds it, with an input."""
    x = torch.arange(32.0).view(4, 8)
    storage_marks.mark_on_device([x])
    with torch_patches.installed(torch_cuda.patches()), cuda.surroundings(), torch.no_grad():
        yield x


@contextlib.contextmanager
def on_mps() -> Iterator[Any]:
    x = torch.arange(32.0).view(4, 8)
    storage_marks.mark_on_device([x])
    with torch_patches.installed(torch_mps.patches()), metal.surroundings(), torch.no_grad():
        yield x


@pytest.mark.cpu
@pytest.mark.parametrize(
    ("expression", "device"),
    [
        ("x", "cuda:0"),
        ("torch.empty(3)", "cpu"),
        ("torch.empty(3, device='cuda')", "cuda:0"),
        ("torch.empty(3, device=0)", "cuda:0"),
        ("torch.empty(3, device=x.device)", "cuda:0"),
        ("torch.from_numpy(torch.ones(2).numpy())", "cpu"),
        ("torch.empty_like(x)", "cuda:0"),
        ("torch.zeros_like(x, device='cpu')", "cpu"),
        ("x.new_zeros(3)", "cuda:0"),
        ("x.cpu()", "cpu"),
        ("x.to('cpu')", "cpu"),
        ("x.to(torch.zeros(1))", "cpu"),
        ("x.cpu().cuda()", "cuda:0"),
        ("torch.ones(2).to('cuda', torch.float16)", "cuda:0"),
        ("torch.ones(2).to(device='cuda:0', non_blocking=True)", "cuda:0"),
        ("torch.ones(2).type_as(x)", "cuda:0"),
        ("torch.ones(4, 8).copy_(x)", "cpu"),
        ("x[:, 1:].T.reshape(-1)", "cuda:0"),
        ("x * torch.tensor(2.0)", "cuda:0"),
        ("x[torch.tensor([0, 2])]", "cuda:0"),
        ("torch.cat([x, x]).softmax(1).topk(2).indices", "cuda:0"),
        ("nn.Linear(8, 2).weight", "cpu"),
        ("nn.Linear(8, 2, device='cuda').weight", "cuda:0"),
        ("nn.Linear(8, 2).cuda()(x)", "cuda:0"),
        ("nn.LSTM(8, 2).to('cuda')(x)[0]", "cuda:0"),
        ("nn.MultiheadAttention(8, 2).cuda()(x, x, x)[0]", "cuda:0"),
        ("torch.vmap(lambda row: row * 2)(x)", "cuda:0"),
        ("torch.randn(2, device='cuda', generator=torch.Generator('cuda'))", "cuda:0"),
    ],
)
def test_tensors_are_where_they_would_be(expression: str, device: str) -> None:
    with on_cuda() as x:
        made = eval(expression, {"torch": torch, "nn": nn, "x": x})
        assert str(made.device) == device
        assert made.is_cuda is (device == "cuda:0")
        assert made.is_cpu is (device == "cpu")
    assert str(made.device) == "cpu"


@pytest.mark.cpu
@pytest.mark.parametrize(
    ("expression", "error", "words"),
    [
        ("x + torch.zeros(4, 8)", RuntimeError, "Expected all tensors to be on the same device"),
        ("torch.zeros(4, 8).add_(x)", RuntimeError, "Expected all tensors to be on the same device"),
        ("torch.cat([x, torch.zeros(4, 8)])", RuntimeError, "device=x.device"),
        ("nn.Linear(8, 2)(x)", RuntimeError, "shape (2, 8)"),
        ("torch.add(x, 1, out=torch.empty(4, 8))", RuntimeError, "in add"),
        ("torch.zeros(9)[x.argmax(1)]", RuntimeError, "indices should be either on cpu"),
        ("x.numpy()", TypeError, "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu()"),
        ("x.__array__()", TypeError, "Use Tensor.cpu()"),
        ("torch.from_dlpack(x)", RuntimeError, "not emulated"),
        ("torch.zeros(2, device='cuda:1')", RuntimeError, "there is one device"),
        (
            "torch.randn(2, device='cuda', generator=torch.Generator())",
            RuntimeError,
            "'cuda' device type for generator",
        ),
        ("torch.cuda.CUDAGraph()", RuntimeError, "torch.cuda.CUDAGraph is not emulated"),
        ("torch.cuda.graph(None)", RuntimeError, "torch.cuda.graph is not emulated"),
    ],
)
def test_what_would_be_an_error_is_one(expression: str, error: type[Exception], words: str) -> None:
    with on_cuda() as x, pytest.raises(error) as caught:
        eval(expression, {"torch": torch, "nn": nn, "x": x})
    assert words in str(caught.value)


@pytest.mark.cpu
def test_a_moved_tensor_shares_nothing_with_the_one_it_was() -> None:
    with on_cuda() as x:
        there = torch.zeros(3).cuda()
        back = there.cpu()
        there += 1
        assert back.numpy().tolist() == [0, 0, 0]
        assert there.tolist() == [1, 1, 1]
        assert there.cuda() is there
        assert x.sum().item() == sum(range(32))
        assert x.numpy(force=True).shape == (4, 8)


@pytest.mark.cpu
def test_addresses_of_the_device_are_not_the_processors() -> None:
    with on_cuda() as x:
        assert x.data_ptr() - x.untyped_storage().data_ptr() >= 1 << 48
        assert x[0, 1:].data_ptr() == x.data_ptr() + 4
        host = torch.zeros(3)
        assert host.data_ptr() == host.untyped_storage().data_ptr()


@pytest.mark.cpu
def test_what_programs_ask_of_torch_cuda_is_there() -> None:
    with on_cuda() as x:
        stream, event = torch.cuda.Stream(), torch.cuda.Event(enable_timing=True)
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream), torch.cuda.device(x.device):
            y = x * 2
            event.record(stream)
        torch.cuda.current_stream().wait_event(event)
        y.record_stream(stream)
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.set_default_device("cuda")
        assert torch.zeros(2).is_cuda
        assert torch.get_default_device() == x.device
        torch.set_default_device(None)
        assert not torch.zeros(2).is_cuda
        with torch.device("cuda"):
            assert torch.zeros(2).is_cuda
        with pytest.raises(RuntimeError, match="nothing is timed"):
            event.elapsed_time(event)
        with pytest.raises(RuntimeError, match=r"torch\.cuda\.\w+ is not emulated"):
            torch.cuda.current_blas_handle()


@pytest.mark.cpu
def test_what_programs_ask_of_torch_mps_is_there() -> None:
    with on_mps() as x:
        torch.mps.synchronize()
        torch.mps.empty_cache()
        assert torch.mps.current_allocated_memory() == 0
        assert torch.backends.mps.is_built()
        assert x.is_mps
        torch.mps.manual_seed(3)
        first = torch.rand(2, device="mps")
        torch.mps.manual_seed(3)
        assert torch.equal(first, torch.rand(2, device="mps"))
        with pytest.raises(TypeError, match="float64"):
            x.double()
        assert x.cpu().double().dtype == torch.float64


@pytest.mark.cpu
def test_torch_is_itself_again_afterwards() -> None:
    names = [(holder, name) for patches in (torch_cuda.patches(), torch_mps.patches()) for holder, name in patches]
    before = [getattr(holder, name, None) for holder, name in names]
    with on_cuda():
        torch.set_default_device("cuda")
    with on_mps():
        pass
    assert [getattr(holder, name, None) for holder, name in names] == before
    assert torch.zeros(2).device.type == "cpu"


@pytest.mark.toolchain
def test_a_kernel_is_given_the_devices_memory_only() -> None:
    library = copying()
    with on_mps() as x:
        with pytest.raises(KernelFault, match=r"copy: argument 1 \(`y`\) is memory of the host.*device=\"mps\""):
            library.copy(x, torch.empty(x.shape))
        library.copy(x, torch.empty_like(x))
    library.copy(torch.ones(3), torch.empty(3))
    kernel = cuda.Program(ADD).compile().get_kernel("add")
    config = cuda.LaunchConfig(grid=1, block=4)
    with on_cuda() as x:
        with pytest.raises(KernelFault, match=r"add: `y` is memory of the host.*\.to\(\"cuda\"\)"):
            cuda.launch_kernel(None, config, kernel, torch.empty(4).data_ptr())
        y = torch.zeros(8, device="cuda")
        cuda.launch_kernel(None, config, kernel, y[4:].data_ptr())
        assert y.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]


@pytest.mark.toolchain
@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("library.copy(x, y)", ""),
        ("library.copy(x, y); y = (y.reshape(-1) * 2).cpu().to('mps')", ""),
        ("library.copy(x * 2, y); y = nn.functional.relu(y)", ""),
        ("library.copy(x, y); y = x + 0", "unread"),
        ("library.copy(x, y.clone()); y.copy_(x)", "unread"),
        ("library.copy(torch.tensor(x.tolist(), device='mps'), y)", "unfed"),
        ("library.copy(torch.from_numpy(x.cpu().numpy() * 2).to('mps'), y); z = x", "unfed"),
    ],
)
def test_a_result_is_followed_to_the_kernels_that_made_it(body: str, why: str) -> None:
    library = copying()
    with on_mps() as x:
        known = {"torch": torch, "nn": nn, "x": x, "y": torch.zeros_like(x), "library": library}
        launch_trace.begin_dataflow_trace([x])
        exec(body, known)
        found = launch_trace.end_dataflow_trace([known["y"]])
    assert found == why


@pytest.mark.toolchain
def test_kernels_of_one_source_may_hand_things_on_in_variables_of_their_own() -> None:
    source = """__device__ float kept;
    extern "C" __global__ void take(const float* x) { kept = x[3]; }
    extern "C" __global__ void give(float* y) { y[0] = kept; }"""
    program = cuda.Program(source).compile()
    config = cuda.LaunchConfig(grid=1, block=1)
    with on_cuda() as x:
        y = torch.empty(1, device="cuda")
        launch_trace.begin_dataflow_trace([x])
        cuda.launch_kernel(None, config, program.get_kernel("take"), x.data_ptr())
        cuda.launch_kernel(None, config, program.get_kernel("give"), y.data_ptr())
        assert launch_trace.end_dataflow_trace([y]) == ""
        assert y.item() == 3


@pytest.mark.toolchain
def test_a_judged_program_cannot_switch_checked_mode() -> None:
    library = copying()
    with on_mps(), pytest.raises(KernelFault, match="not the program's"):
        metal.set_checked(False)
    with pytest.raises(AttributeError):
        library._launch = print
    with metal.installed():
        metal.set_checked(True)
    assert launch_trace.is_checked()
    metal.set_checked(False)


@given(
    st.lists(
        st.one_of(st.floats(width=32, allow_subnormal=False), st.integers(0, 1 << 40).map(lambda n: n << 4)),
        max_size=40,
    ),
    st.data(),
)
def test_addresses_are_found_wherever_they_stand(values: list[float | int], data: st.DataObject) -> None:
    """Numbers are pairs of floats, addresses what a program is told for one."""
    words, wanted = [], []
    for number, value in enumerate(values):
        if isinstance(value, int) and value:
            words.append(struct.pack("<Q", storage_marks.device_address(value)))
            wanted.append((8 * number, value))
        else:
            words.append(struct.pack("<ff", 1.0, float(value)))
    tail = data.draw(st.binary(max_size=7))
    assert list(storage_marks.addresses_in(memoryview(b"".join(words) + tail))) == wanted
