"""What counts as right: norm and worst element, held to float64, relative to the output's own scale."""

from __future__ import annotations

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from kforge.worker import trees  # noqa: E402
from kforge.worker.arena import Arena, ArenaLayout, tensor_hash  # noqa: E402
from kforge.worker.judge import parameters, statistics  # noqa: E402
from kforge.worker.judge.compare import Tolerance, compare, make_leaf, spread_indices  # noqa: E402
from kforge.worker.protocol.records import HeldTensor  # noqa: E402

pytestmark = pytest.mark.cpu

PLAIN = Tolerance({})


def judge(got, eager, exact=None, tolerance=PLAIN):
    return compare(make_leaf(eager, exact), got, tolerance, "the output")


def matmul_case(seed=0, scale=1.0):
    torch.manual_seed(seed)
    a, b = torch.randn(96, 200) * scale, torch.randn(200, 80)
    return a, b, a @ b, a.double() @ b.double()


def test_eager_itself_passes():
    _, _, eager, exact = matmul_case()
    assert not judge(eager, eager, exact).message


def test_another_order_of_summation_passes():
    a, b, eager, exact = matmul_case()
    naive = torch.zeros(96, 80)
    for k in range(200):
        naive += a[:, k : k + 1] * b[k : k + 1]
    assert not judge(naive, eager, exact).message


@pytest.mark.parametrize("scale", [1e-20, 1e-6, 1.0, 1e6])
def test_half_precision_arithmetic_in_a_float32_problem_is_a_mismatch(scale):
    a, b, eager, exact = matmul_case(scale=scale)
    half = ((a / scale).half().float() * scale) @ b.half().float()
    assert "lower precision" in judge(half, eager, exact).message


def test_declared_precision_is_allowed():
    a, b, eager, exact = matmul_case()
    half = a.half().float() @ b.half().float()
    assert not judge(half, eager, exact, Tolerance({}, "float16")).message


def test_zeros_for_a_tiny_output_are_wrong():
    _, _, eager, exact = matmul_case(scale=1e-30)
    assert judge(torch.zeros_like(eager), eager, exact).message


@given(st.integers(0, 95), st.integers(0, 79), st.sampled_from([0.01, -0.5, 3.0]))
@settings(max_examples=25, deadline=None)
def test_one_wrong_element_is_found_and_named(row, column, change):
    _, _, eager, exact = matmul_case()
    bad = eager.clone()
    bad[row, column] += change * 15
    message = judge(bad, eager, exact).message
    assert "1 of 7680 elements" in message
    assert f"at [{row}, {column}]" in message


def test_the_place_of_a_pattern_is_said():
    _, _, eager, exact = matmul_case()
    bad = eager.clone()
    bad[:, 76:] = 0
    assert "axis 1: 76..79 of 0..79" in judge(bad, eager, exact).message


def test_nan_and_infinity_belong_where_the_reference_has_them():
    eager = torch.tensor([1.0, float("nan"), float("inf"), -float("inf"), 2.0])
    assert not judge(eager.clone(), eager, eager.double()).message
    for place, value in ((0, float("nan")), (1, 0.0), (2, -float("inf")), (3, 0.0), (4, float("inf"))):
        bad = eager.clone()
        bad[place] = value
        assert judge(bad, eager, eager.double()).message, (place, value)


def test_overflow_of_eager_alone_is_not_held_against_a_better_kernel():
    eager, exact = torch.tensor([float("inf"), 1.0]), torch.tensor([3.0, 1.0], dtype=torch.float64)
    assert not judge(torch.tensor([3.0, 1.0]), eager, exact).message
    assert not judge(torch.tensor([float("inf"), 1.0]), eager, exact).message
    assert judge(torch.tensor([7.0, 1.0]), eager, exact).message


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.int64, torch.bool])
def test_integers_are_exact(dtype):
    eager = torch.randint(0, 2, (50,)).to(dtype)
    assert not judge(eager.clone(), eager).message
    bad = eager.clone()
    bad[7] = 1 - bad[7].to(torch.int64)
    assert "1 of 50" in judge(bad, eager).message


def test_complex_outputs():
    eager = torch.randn(40, dtype=torch.complex64)
    exact = eager.to(torch.complex128)
    assert not judge(eager.clone(), eager, exact).message
    assert judge(eager.conj().resolve_conj(), eager, exact).message


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_problems_have_room_for_their_own_rounding(dtype):
    exact = torch.randn(64, 64, dtype=torch.float64)
    eager = exact.to(dtype)
    assert not judge((exact * (1 + 1e-3)).to(dtype), eager, exact).message
    assert judge((exact * 1.1).to(dtype), eager, exact).message


@pytest.mark.parametrize("shape", [(), (0,), (0, 5), (1,), (3, 1)])
def test_odd_shapes(shape):
    eager = torch.ones(shape) * 2
    assert not judge(eager.clone(), eager, eager.double()).message


@given(st.integers(1, 1 << 40), st.integers(1, 8))
def test_places_that_are_shown_lie_within_however_many_there_are(count, wanted):
    shown = spread_indices(count, wanted)
    assert len(shown) == min(count, wanted)
    assert shown == sorted(set(shown))
    assert (shown[0], shown[-1]) == (0, count - 1 if len(shown) > 1 else 0)


def test_an_output_that_is_wrong_everywhere_is_described_however_large_it_is():
    eager = torch.zeros(1 << 25, dtype=torch.int8)
    found = judge(eager + 1, eager)
    assert f"{1 << 25} of {1 << 25} elements are wrong" in found.message
    assert f"at [{(1 << 25) - 1}]: expected 0, got 1" in found.message


def test_large_outputs_are_compared_in_pieces():
    eager = torch.randn(3, 200_001)
    bad = eager.clone()
    bad[2, 200_000] += 1
    assert "at [2, 200000]" in judge(bad, eager, eager.double()).message


# -- memory both sides map -----------------------------------------------------------------------------------------


@given(
    st.sampled_from(
        [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool, torch.complex64]
    ),
    st.lists(st.integers(0, 4), max_size=4),
    st.randoms(),
)
@settings(deadline=None)
def test_tensors_survive_shared_memory(dtype, shape, dice):
    tensor = (torch.rand(shape) * 5).to(dtype)
    order = list(range(len(shape)))
    dice.shuffle(order)
    tensor = tensor.permute(order)
    layout = ArenaLayout()
    spec = layout.place(tensor)
    arena = Arena.create(layout.size)
    arena.tensor(spec).copy_(tensor)
    other = Arena(os.dup(arena.fd), arena.size)
    seen = other.tensor(spec)
    assert torch.equal(seen, tensor)
    assert tensor_hash(seen) == tensor_hash(tensor)
    arena.close()


def test_the_other_side_cannot_shrink_the_memory():
    import os

    arena = Arena.create(1 << 16)
    with pytest.raises(PermissionError):
        os.ftruncate(arena.fd, 0)
    arena.close()


def test_memory_can_be_sealed_against_writing_by_others():
    import mmap

    arena = Arena.create(1 << 16)
    arena.seal_against_others()
    with pytest.raises(PermissionError):
        mmap.mmap(arena.fd, 1 << 16)
    other = Arena(os.dup(arena.fd), arena.size, read_only=True)
    layout = ArenaLayout()
    spec = layout.place(torch.zeros(8))
    arena.tensor(spec).fill_(3.0)
    assert other.tensor(spec).tolist() == [3.0] * 8
    arena.close()


trees_of = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5) | st.just("tensor"),
    lambda inner: (
        st.lists(inner, max_size=3) | st.tuples(inner, inner) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(trees_of)
@settings(deadline=None)
def test_structures_come_back_as_they_were(value):
    def fill(item):
        if item == "tensor":
            return torch.arange(3)
        if isinstance(item, (list, tuple)):
            return type(item)(fill(part) for part in item)
        return {key: fill(part) for key, part in item.items()} if isinstance(item, dict) else item

    def plain(item):
        if isinstance(item, torch.Tensor):
            return item.tolist()
        if isinstance(item, (list, tuple)):
            return type(item)(plain(part) for part in item)
        return {key: plain(part) for key, part in item.items()} if isinstance(item, dict) else item

    filled = fill(value)
    tree, tensors = trees.pack(filled)
    assert plain(trees.unpack(tree, tensors)) == plain(filled)
    assert trees.foreign_type(tree) == ""


def test_an_object_no_tree_holds_is_named():
    tree, _ = trees.pack([1, {"a": (object(),)}])
    assert trees.foreign_type(tree) == "object"


# -- parameters --------------------------------------------------------------------------------------------------------


def held(name, value):
    return HeldTensor(name, "parameter", tuple(value.shape), tensor_hash(value))


def test_parameters_match_by_name_then_by_value_then_transposed():
    state = {"fc.weight": torch.randn(4, 6), "fc.bias": torch.randn(4), "norm.weight": torch.randn(3, 5)}
    candidate = [
        held("fc.weight", torch.randn(4, 6)),
        held("b", state["fc.bias"]),
        held("w_t", state["norm.weight"].t().contiguous()),
    ]
    matches, lost = parameters.match(state, candidate)
    assert lost == []
    assert {match.source: match.name for match in matches} == {
        "fc.weight": "fc.weight",
        "fc.bias": "b",
        "norm.weight": "w_t",
    }
    turned = next(match for match in matches if match.name == "w_t")
    fresh = {**state, "norm.weight": torch.randn(3, 5)}
    assert torch.equal(turned.value(fresh), fresh["norm.weight"].t())


def test_what_cannot_be_matched_is_said():
    state = {"weight": torch.randn(4), "bias": torch.zeros(4)}
    matches, lost = parameters.match(state, [held("weight", torch.ones(5))])
    assert matches == []
    assert lost == ["weight", "bias"]


def test_equal_values_are_matched_in_order_and_once():
    state = {"a": torch.ones(4), "b": torch.ones(4)}
    matches, lost = parameters.match(state, [held("x", torch.ones(4)), held("y", torch.ones(4))])
    assert not lost
    assert [(match.source, match.name) for match in matches] == [("a", "x"), ("b", "y")]


# -- statistics -------------------------------------------------------------------------------------------------------


def test_the_interval_covers_the_true_median():
    generator = torch.Generator().manual_seed(3)
    covered = 0
    for trial in range(200):
        sample = torch.exp(0.1 * torch.randn(12, generator=generator)).tolist()
        low, high = statistics.median_interval(sample, trial)
        covered += low <= 1.0 <= high
    assert covered >= 186, f"{covered} of 200"


def test_linear_drift_cancels_in_abba_groups():
    # Order b c c b: the machine slows down steadily, both programs are the same.
    baseline, candidate, clock = [], [], 100.0
    for order in ["bc", "cb"] * 10:
        for side in order:
            (baseline if side == "b" else candidate).append(clock)
            clock += 1.0
    assert all(ratio == pytest.approx(1.0) for ratio in statistics.group_ratios(baseline, candidate))


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=30))
@settings(deadline=None)
def test_the_median_lies_in_its_interval(values):
    low, high = statistics.median_interval(values)
    assert low <= statistics.median(values) <= high


@settings(max_examples=60, deadline=None)
@given(
    exponent=st.integers(-37, 37),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
    special=st.sampled_from([None, float("nan"), float("inf"), -float("inf")]),
    zeros=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_what_stands_in_for_float64_is_measured_as_float64_is(exponent, dtype, special, zeros, seed):
    torch.manual_seed(seed)
    tensor = torch.randn(40, 24, dtype=torch.float64).mul_(0.0 if zeros else 10.0**exponent).to(dtype)
    if special is not None:
        tensor[3, 5] = special
    one, two = make_leaf(tensor, None), make_leaf(tensor, tensor.double())
    assert one.exact is one.eager
    assert one.finite is two.finite is (special is None)
    assert one.rms == pytest.approx(two.rms, rel=1e-5, abs=0.0)
    assert one.eager_norm == two.eager_norm == one.eager_worst == two.eager_worst == 0.0


@pytest.mark.parametrize("special", [None, float("nan"), float("inf")])
def test_the_values_of_an_exact_reference_pass_and_others_do_not(special):
    eager = torch.arange(640.0).reshape(20, 32)
    if special is not None:
        eager[3, 5] = special
    leaf = make_leaf(eager, eager.double())
    assert compare(leaf, eager.clone(), PLAIN, "it") == compare(leaf, eager.t().contiguous().t(), PLAIN, "it")
    minus = eager.clone()
    minus[0, 0] = -0.0
    assert compare(leaf, minus, PLAIN, "it").worst == 0.0
    for place, value in (((0, 0), 1.0), ((3, 5), 2.0), ((9, 9), float("nan")), ((19, 31), float("inf"))):
        wrong = eager.clone()
        wrong[place] = value
        assert compare(leaf, wrong, PLAIN, "it").message, (place, value)
