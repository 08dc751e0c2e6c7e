"""What goes to a judge and what comes back.

    Problem + Candidate + Settings -> Job -> Verdict (with its Evidence), Profile -> Report

A `Verdict` that contradicts itself cannot be constructed.
"""

from __future__ import annotations

import enum
import hashlib
import math
import textwrap
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

from kforge import kernelbench, live_module, trace_definition
from kforge.errors import ProblemError
from kforge.types.live_workloads import live_workloads
from kforge.types.workload import DynamicSize, Workload
from kforge.visible_text import visible

EVIDENCE_VERSION = 1
DTYPES = ("float16", "bfloat16", "float32", "float64")
"""What a problem's floating tensors may be."""


def text_hash(text: str) -> str:
    """The identity of a piece of source: 16 hexadecimal digits of its SHA-256."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def no_problem(given: object) -> str:
    """The sentence for something that is neither a problem nor the place of one."""
    kind = type(given).__name__
    return (
        f"a {kind} is no problem: give the path of a problem file, or make a problem of a live module with "
        "kforge.Problem.from_module(module, [its arguments])"
    )


def _length(source: str) -> str:
    """A text's length for people: what a repr says in place of the text."""
    lines = len(source.splitlines())
    return "1 line" if lines == 1 else f"{lines} lines"


def _duration(nanoseconds: float) -> str:
    """310 ns, 12.4 µs, 3.1 ms."""
    for unit, each in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if nanoseconds >= each:
            return f"{nanoseconds / each:.3g} {unit}"
    return f"{nanoseconds:.0f} ns"


@dataclass(frozen=True)
class ProblemForm:
    """In which form a problem is wanted, beside what its file says."""

    dtype: str = ""
    """The dtype of floating inputs, parameters and buffers; empty: whatever the problem itself gives them."""
    backward: bool = False
    """Whether gradients are part of it: a call is then forward and backward."""

    def __post_init__(self) -> None:
        if self.dtype and self.dtype not in DTYPES:
            raise ValueError(f"dtype must be one of {', '.join(DTYPES)}")

    @property
    def is_short(self) -> bool:
        """Whether its numbers have 16 bits."""
        return self.dtype in ("float16", "bfloat16")

    def __str__(self) -> str:
        return ", ".join(filter(None, (self.dtype, "with gradients" if self.backward else "")))


@dataclass(frozen=True)
class Problem:
    """A PyTorch module to make faster, in KernelBench's file format or captured live."""

    name: str
    """What people call it: the file's stem, or the module's class."""
    source: str
    """The file's text; for a live module, its class's text, for people and prompts."""
    level: int | None = None
    """KernelBench level: 1 single ops, 2 fusions, 3 networks."""
    number: int | None = None
    """Its number within the level."""
    path: str = ""
    """Where it was read from; empty for a live module."""
    sizes: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Overrides of module-level constants per device class."""
    distributions: tuple[str, ...] = kernelbench.DISTRIBUTIONS
    """Input distributions it can take."""
    tolerances: dict[str, float] = field(default_factory=dict)
    """Relative tolerance per dtype name, where the default is not right for it."""
    workloads: tuple[Workload, ...] = ()
    """The sizes it is wanted for, each of them timed; none: its own alone."""
    dynamic: tuple[DynamicSize, ...] = ()
    """Sizes that vary: a program must be right everywhere in these ranges."""
    selected: Workload | None = None
    """The one workload that is meant, where the problem stands for one of its own."""
    form: ProblemForm = ProblemForm()
    """In what it differs from its file."""
    payload: str = field(default="", compare=False)
    """For a live module: the file that holds the pickled module and example inputs. Its hash says what is in it; where
    it lies makes no other problem."""
    payload_hash: str = ""
    """SHA-256 of that file."""

    def __repr__(self) -> str:
        form = f", {self.form}" if str(self.form) else ""
        workloads = f", {len(self.workloads)} workloads" if self.workloads else ""
        return f"<Problem {self.key} ({self.id}{form}), {_length(self.source)}{workloads}>"

    def __post_init__(self) -> None:
        dtype = self.form.dtype
        if dtype and self.payload_hash:
            raise ProblemError(
                f"a live module has the dtypes it has: make the problem of one in {dtype}, as in "
                f"kforge.Problem.from_module(module.to(torch.{dtype}), [its arguments])"
            )

    @property
    def id(self) -> str:
        sizes = [workload.identity for workload in (self.selected, *self.workloads) if workload is not None]
        parts = (self.source, self.payload_hash, str(self.form), *sizes, *map(str, self.dynamic))
        return text_hash("".join(parts))

    @property
    def main_workload(self) -> Workload:
        """The workload that stands for all of them where there can be but one: the selected one, or the first."""
        return self.selected or next(iter(self.workloads), Workload())

    @property
    def workload_shares(self) -> tuple[tuple[Workload, float], ...]:
        """The declared workloads, each with its share of the mean; the shares add up to 1."""
        total = sum(workload.weight for workload in self.workloads)
        return tuple((workload, workload.weight / total) for workload in self.workloads)

    def at(self, workload: Workload) -> Problem:
        """The problem at one of its workloads, or at sizes inside its ranges."""
        return replace(self, workloads=(), dynamic=(), selected=workload)

    def in_form(self, form: ProblemForm) -> Problem:
        """The same problem in another dtype, or with its gradients; what is not asked for stays as it is."""
        return replace(self, form=ProblemForm(form.dtype or self.form.dtype, form.backward or self.form.backward))

    @property
    def key(self) -> str:
        """What the problem is called among others: level1/23_Softmax, or its name where it has no level."""
        return f"level{self.level}/{self.name}" if self.level else self.name

    def sized_source(self, device_class: str) -> str:
        """The source with this device class's sizes in place."""
        return kernelbench.with_sizes(self.source, self.sizes_for(device_class), self.path)

    def sizes_for(self, device_class: str) -> dict[str, Any]:
        """The overrides for a device class; an emulator takes the CPU's where there are none for it.

        A workload's own constants come before either.
        """
        sizes = self.sizes.get(device_class) or (self.sizes.get("cpu", {}) if device_class == "emulator" else {})
        return {**sizes, **self.main_workload.constants}

    @classmethod
    def from_source(
        cls, source: str, name: str = "problem", path: str = "", level: int | None = None, number: int | None = None
    ) -> Problem:
        """A problem from a file's text; ProblemError names the line of what is missing."""
        declared = kernelbench.check(source, path or name)
        return cls(
            name=name,
            source=source,
            path=path,
            sizes=declared.sizes,
            distributions=declared.distributions,
            tolerances=declared.tolerances,
            workloads=tuple(Workload(constants, weight=weight) for constants, weight in declared.workloads),
            dynamic=tuple(DynamicSize(name, *span) for name, span in declared.dynamic.items()),
            form=ProblemForm(backward=declared.backward),
            level=level,
            number=number,
        )

    @classmethod
    def from_file(cls, path: str | Path) -> Problem:
        """A problem from a KernelBench-format file; level and number come from its path if it has them.

        A file of JSON is a Definition of flashinfer-bench or SOL-ExecBench, which has its Workloads beside it.
        """
        if not isinstance(path, (str, Path)):
            raise ProblemError(no_problem(path))
        file = Path(path)
        try:
            if file.suffix == ".json":
                name, source = trace_definition.read_definition(file)
                return cls.from_source(source, name=name, path=str(path))
            source = file.read_text(encoding="utf-8")
        except OSError as error:
            raise ProblemError(f"cannot be read: {error.strerror}", path=str(path)) from None
        except UnicodeDecodeError as error:
            raise ProblemError(f"is not UTF-8 text (byte {error.start})", path=str(path)) from None
        head = file.stem.split("_", 1)[0]
        folder = file.parent.name
        level = folder.removeprefix("level")
        return cls.from_source(
            source,
            name=file.stem.encode("utf-8", "backslashreplace").decode(),
            path=str(path),
            level=int(level) if folder.startswith("level") and level.isdecimal() else None,
            number=int(head) if head.isdecimal() else None,
        )

    @classmethod
    def from_module(
        cls, module: Any, example_inputs: Any = None, name: str = "", *, dynamic: Any = None, weights: Any = None
    ) -> Problem:
        """A problem from a live nn.Module; a candidate's `ModelNew()` takes no arguments and gets its weights.

        `example_inputs` are the arguments of a call of the module, in a list; or a list of such lists, each of them a
        workload, with `weights` where they do not count alike. `dynamic` says which lengths vary: the name of an
        argument -> axis -> (lowest, highest), as in {"x": {0: (1, 8192)}}. ProblemError says what cannot be used.
        """
        live_module.check(module, example_inputs)
        live = live_workloads(module, example_inputs, dynamic, weights)
        source, payload, digest = live_module.capture(module, live.arguments, live.description)
        return cls(
            name=name or type(module).__name__,
            source=source,
            workloads=live.workloads,
            dynamic=live.dynamic,
            payload=payload,
            payload_hash=digest,
        )


@dataclass(frozen=True)
class Candidate:
    """A program that claims to be a faster drop-in: a Python file with a class `ModelNew`."""

    source: str
    """The file's text."""
    platform: str = "cpu"
    """The platform it is written for."""
    parent: str | None = None
    """The id of the candidate it was made from."""
    name: str = ""
    """What people call it: the file's stem."""

    def __repr__(self) -> str:
        named = f"{self.name} ({self.id})" if self.name else self.id
        return f"<Candidate {named} for {self.platform}, {_length(self.source)}>"

    @property
    def id(self) -> str:
        return text_hash(self.source)


BaselineName = Literal["eager", "tf32", "compile", "compile_tf32", "autotune", "best"]
Policy = Literal["strict", "hybrid", "any"]
SandboxChoice = Literal["auto", "bubblewrap", "unshare", "process"]


@dataclass(frozen=True)
class Limits:
    """What one runner may use; beyond it, it is killed."""

    build_seconds: float = 180.0
    """Wall clock for importing the file, compiling, and constructing the module."""
    call_seconds: float = 30.0
    """Wall clock for a call of forward, beyond what the reference itself needs."""
    memory_bytes: int = 0
    """Memory of all its processes together; 0 means three quarters of the machine's."""
    file_bytes: int = 1 << 30
    """Size of any file it writes, and of its private temporary folder."""
    processes: int = 0
    """Processes and threads at once; 0 means 512 plus 8 for each core."""


@dataclass(frozen=True)
class Settings:
    """How one evaluation is to be made."""

    baseline: BaselineName = "eager"
    """What `speedup` is measured against."""
    compile_baseline: bool = True
    """Whether torch.compile is built and timed too, so that `speedup_vs_best` can be said."""
    autotune_baseline: bool = False
    """Whether torch.compile's max-autotune mode is built and timed too: minutes, once per problem."""
    policy: Policy = "hybrid"
    """strict: no library compute; hybrid: library calls reported, some custom code required; any."""
    precision: str = ""
    """The lowest arithmetic precision allowed (float16, bfloat16, tf32); empty: the problem's own."""
    seeds: int = 5
    """How many freshly drawn input sets are checked, rotating over the distributions."""
    timing_seconds: float = 0.5
    """Time given to the interleaved measurement; it stops earlier when the interval is tight."""
    sandbox: SandboxChoice = "auto"
    """auto takes the strongest level this machine has; a named level is required, or it is an error."""
    profilers: tuple[str, ...] = ()
    """What to profile a correct candidate with."""
    sanitize: bool = False
    """Whether a correct candidate must also pass the platform's memory and race checkers."""
    seed: int | None = None
    """The master seed; None draws a secret one. Set only to replay a record."""
    limits: Limits = Limits()
    """What the candidate may use."""

    def __post_init__(self) -> None:
        if not 1 <= self.seeds <= 1000:
            raise ValueError("seeds must be between 1 and 1000")
        if self.timing_seconds < 0:
            raise ValueError("timing_seconds must not be negative; 0 leaves timing out")
        if self.precision not in ("", "tf32", "float16", "bfloat16", "float32"):
            raise ValueError("precision must be float16, bfloat16, tf32 or float32")
        for name, kind in (("baseline", BaselineName), ("policy", Policy), ("sandbox", SandboxChoice)):
            if getattr(self, name) not in get_args(kind):
                raise ValueError(f"{name} must be one of {', '.join(get_args(kind))}")


@dataclass(frozen=True)
class Job:
    """One evaluation to make."""

    id: str
    """Unique within its batch; names the report's file."""
    problem: Problem
    candidate: Candidate
    settings: Settings = Settings()
    profile_above: float = 0.0
    """Profilers look at a correct candidate that is surely this many times faster than the baseline, or that was not
    timed for sure. No part of what decides the verdict.
    """

    def is_profiled(self, verdict: Verdict) -> bool:
        """Whether anybody will read a profile of its candidate, given the verdict."""
        interval = None if verdict.contended else verdict.interval
        slow = interval is not None and interval[0] < self.profile_above
        return bool(self.settings.profilers) and verdict.outcome is Outcome.CORRECT and not slow


class Outcome(enum.Enum):
    """The state a candidate ended in."""

    GENERATION_FAILURE = "generation_failure"
    COMPILATION_FAILURE = "compilation_failure"
    RUNTIME_ERROR = "runtime_error"
    MISMATCH = "mismatch"
    REJECTED = "rejected"
    CORRECT = "correct"


@dataclass(frozen=True)
class ErrorNorm:
    """How far one checked call was from the reference."""

    distribution: str
    """Which inputs."""
    norm: float
    """‖candidate − reference‖ / ‖reference‖, the worst output."""
    norm_limit: float
    """What was allowed."""
    worst: float
    """The worst element's error over its own limit: at most 1 passes."""
    workload: str = ""
    """On which of the problem's workloads; empty where it has but one."""

    @property
    def inputs(self) -> str:
        """What the call was given, for people."""
        return f"{self.distribution}, {self.workload}" if self.workload else self.distribution


@dataclass(frozen=True)
class BaselineTime:
    """One way of running the reference, timed against eager in the same run."""

    name: str
    """eager, tf32, compile, compile_tf32 or autotune."""
    ratio: float | None
    """How many times faster than eager; None where it could not be built."""
    note: str = ""
    """Why it is missing, or what is odd about it."""
    precision: str = ""
    """The precision a verdict must allow for its results to be accepted; empty: the problem's own."""


@dataclass(frozen=True)
class Speedup:
    """How many times as fast, with its 95 % interval."""

    value: float
    interval: tuple[float, float]

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.value:.2f}x, {low:.2f} to {high:.2f}"


LEAST_HEADROOM = 0.05
"""Eager nearer to the limit than this share of its own time is taken to be so far from it: measurements do not tell
which of two so near to each other is the faster."""


@dataclass(frozen=True)
class TimeLimit:
    """The least time that the machine allows for a call of the problem."""

    ns: float
    how: str
    """How it was found, in one line."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.ns) and self.ns > 0):
            raise ValueError(f"a limit of {self.ns} ns is none")

    def __str__(self) -> str:
        return f"{_duration(self.ns)}: {self.how}"

    def score(self, time_ns: float, eager_ns: float) -> float:
        """SOL-ExecBench's score of a time: 1 at the limit, 0.5 where eager is, towards 0 beyond.

        It is 1 below the limit too: who is there does less than was counted.
        """
        headroom = max(eager_ns - self.ns, LEAST_HEADROOM * eager_ns)
        return 1.0 / (1.0 + max(0.0, time_ns - (eager_ns - headroom)) / headroom)


@dataclass(frozen=True)
class Timing:
    """What the interleaved measurement of candidate against baseline gave."""

    baseline: str
    """The baseline that ran beside the candidate."""
    speedup: float
    """Median over ABBA groups of baseline time over candidate time."""
    interval: tuple[float, float]
    """95 % interval of that median, widened by what the same program against itself showed."""
    speedup_vs_best: float | None
    """Against the fastest baseline whose results would be accepted of a candidate; None where torch.compile was left
    out."""
    candidate_ns: tuple[float, ...]
    """Mean time of a call, one sample per block."""
    baseline_ns: tuple[float, ...]
    """The same for the baseline, in the same order."""
    calls_per_block: int
    """Calls in a block, each on inputs never seen before."""
    checked_calls: int
    """Timed calls whose outputs were verified afterwards."""
    baselines: tuple[BaselineTime, ...] = ()
    """Every baseline there is."""
    clock_excess: float = 0.0
    """Time the judge's clock saw beyond the runner's, as a share of the candidate's time."""
    peak_bytes: tuple[int, int] = (0, 0)
    """Peak resident memory gained over the calls: candidate, baseline; 0 where not readable."""
    conditions: dict[str, str] = field(default_factory=dict)
    """Clock frequency, temperature, load: what was readable."""
    flags: tuple[str, ...] = ()
    """What called for a second look, and how that went."""
    contended: float = 0.0
    """Share of the processors' time that others took in the blocks it rests on, or 1 on a device that others used; 0
    where it had them for itself. Of a contended time nothing is sure."""
    limit: TimeLimit | None = None
    """The least time that the machine allows; None where it is not known."""

    def __post_init__(self) -> None:
        if not 0 <= self.contended <= 1:
            raise ValueError(f"a contended share of {self.contended} is none")
        low, high = self.interval
        if not 0 < low <= self.speedup <= high:
            raise ValueError(f"speedup {self.speedup} is outside its interval {self.interval}")

    def __str__(self) -> str:
        contended = ", contended" if self.contended else ""
        return f"{Speedup(self.speedup, self.interval)} against {self.baseline}{contended}"

    def __repr__(self) -> str:
        return f"<Timing {self}>"

    @property
    def against_eager(self) -> Speedup | None:
        """The speedup over eager, whichever baseline ran beside it; None where that one's ratio to eager is not known.

        Another baseline's ratio to eager was measured in the same run and is multiplied in.
        """
        ratios = {item.name: item.ratio for item in self.baselines} | {"eager": 1.0}
        ratio = ratios.get(self.baseline)
        low, high = self.interval
        return Speedup(self.speedup * ratio, (low * ratio, high * ratio)) if ratio else None

    @property
    def eager_ns(self) -> float | None:
        """What a call of eager takes: the median over blocks; None where it was not measured."""
        speedup = self.against_eager
        if speedup is None or not self.baseline_ns:
            return None
        ordered, half = sorted(self.baseline_ns), len(self.baseline_ns) // 2
        return (ordered[half] + ordered[~half]) / 2 * speedup.value / self.speedup

    @property
    def score(self) -> float | None:
        """How much of the way from eager to the machine's limit was made: 0.5 none, 1 all; None where either is not
        known.

        The candidate's time is eager's over the speedup, so that what was charged to it is part of it.
        """
        speedup, eager_ns = self.against_eager, self.eager_ns
        if self.limit is None or speedup is None or not eager_ns:
            return None
        return self.limit.score(eager_ns / speedup.value, eager_ns)

    @property
    def score_text(self) -> str:
        """The score, what it means, and how the limit was found; empty where there is none."""
        if self.score is None:
            return ""
        return f"{self.score:.2f} (1 = the machine's limit, 0.5 = eager; limit {self.limit})"


@dataclass(frozen=True)
class TensorLayout:
    """How one tensor lies in memory."""

    name: str
    """Its dotted name in the module; empty for an argument."""
    dtype: str
    """torch's name for it: float32, int64."""
    shape: tuple[int, ...]
    stride: tuple[int, ...]


@dataclass(frozen=True)
class DynamicAxes:
    """Axes of a call's tensors that all have one length, which may be any of a range."""

    low: int
    high: int
    step: int
    axes: tuple[tuple[int, int], ...]
    """(tensor, axis) of each: the tensor by its index among the arguments' tensors."""


@dataclass(frozen=True)
class Domain:
    """What a program was verified for: in a call that differs from it, nothing is known of the result."""

    arguments: list[Any]
    """forward's arguments as a tree (`worker/trees.py`), tensors by their index in `tensors`; ["*", tag] where any
    value of that kind was verified."""
    tensors: tuple[TensorLayout, ...]
    """The tensors among the arguments."""
    state: tuple[TensorLayout, ...]
    """Parameters and buffers of the program's module."""
    device: str
    """torch's name for the type of device it runs on."""
    training: bool | None = None
    """The module's mode, where the reference's result depends on it; None: either."""
    exact_shapes: bool = True
    """Whether the shapes are those it is for; an emulator verifies smaller ones."""
    backward: bool = False
    """Whether its gradients were verified too: then it may be trained."""
    ranges: tuple[DynamicAxes, ...] = ()
    """Lengths that may be others than `tensors` has; those tensors are contiguous, whatever the length."""
    others: tuple[Domain, ...] = ()
    """The domains of further workloads: a call like any of them was verified too."""
    constants: dict[str, Any] = field(default_factory=dict)
    """Of a further workload: the constants of the problem's file that make it."""


@dataclass(frozen=True)
class WorkloadResult:
    """What a verdict found on one of a problem's workloads."""

    workload: str
    """What people call it."""
    weight: float
    """Its share of the mean, where the shares of all add up to 1."""
    checked_calls: int
    timing: Timing | None = None
    """None where timing was left out."""
    custom_share: float | None = None
    """Share of time in the candidate's own code; None if it never ran."""


def hardware_name(facts: dict[str, str]) -> str:
    """The model of the hardware that a machine's facts are of: the GPU, or the processor; empty where not known."""
    return facts.get("gpu") or facts.get("processor") or facts.get("cpu") or ""


@dataclass(frozen=True)
class JudgingDevice:
    """A device that judges, among all of a cluster. Empty names where they are not known."""

    host: str = ""
    """As `Evidence.host`."""
    identity: str = ""
    """As `Evidence.identity`."""

    def is_other_than(self, device: JudgingDevice) -> bool:
        """Whether it is known to be another one."""
        hosts_differ = bool(self.host and device.host) and self.host != device.host
        return hosts_differ or (bool(self.identity and device.identity) and self.identity != device.identity)


@dataclass(frozen=True)
class Evidence:
    """Everything needed to believe a verdict, or to run it again and disagree."""

    problem: Problem
    candidate: Candidate
    settings: Settings
    """With the master seed that was used."""
    device: dict[str, str]
    """The machine: processor, cores, vector width, caches."""
    versions: dict[str, str]
    """Python, torch, compilers, kforge, kernel."""
    distributions: tuple[str, ...]
    """In the order the seeds used them."""
    parameters: tuple[str, ...]
    """How the candidate's state was matched to the reference's, one line each."""
    operators: tuple[str, ...]
    """Torch library operators the candidate dispatched in one observed call."""
    native: tuple[str, ...]
    """Native code of its own that the judge saw mapped into the runner."""
    unchecked: tuple[str, ...]
    """What could not be checked on this machine, or for this problem."""
    seconds: dict[str, float]
    """Where the evaluation's time went."""
    sanitized: tuple[str, ...] = ()
    """Memory and race checkers that ran on it and found nothing."""
    held_out: tuple[str, ...] = ()
    """Sizes inside the declared ranges that it was verified on, and that no prompt shows."""
    command: str = "kforge evaluate --replay EVIDENCE.json"
    """What re-runs it."""
    host: str = ""
    """The host of a cluster whose worker judged it; empty where whoever asked did."""
    identity: str = ""
    """A name for the device that no other of its machine has; empty in records of older versions."""
    version: int = EVIDENCE_VERSION

    @property
    def hardware(self) -> str:
        """The model of what it ran on: the GPU, or the processor; empty where that is not known."""
        return hardware_name(self.device)

    @property
    def judging_device(self) -> JudgingDevice:
        """Which of all devices it was judged on."""
        return JudgingDevice(self.host, self.identity)

    def __repr__(self) -> str:
        return f"<Evidence on {self.candidate!r} against {self.problem!r}>"


@dataclass(frozen=True)
class Verdict:
    """What the judge decided, in words a person or a model can act on."""

    outcome: Outcome
    detail: str
    """What happened, where, and how to comply."""
    rule: str = ""
    """For a rejection: the rule's name."""
    errors: tuple[ErrorNorm, ...] = ()
    """Error norms of the checked calls."""
    timing: Timing | None = None
    """Only for a correct candidate; None where timing was left out. Of several workloads, their weighted geometric
    mean."""
    workloads: tuple[WorkloadResult, ...] = ()
    """Each of the problem's workloads, where it has several and the candidate is correct."""
    custom_share: float | None = None
    """Share of time in the candidate's own code; None if it never ran."""
    degenerate: tuple[str, ...] = ()
    """Why the problem itself is unsound; a win on such a problem never counts."""
    sandbox: str = ""
    """The level the runner was held at."""
    emulated: bool = False
    """Whether it ran on an emulator and not on the hardware it is for: then there is no time and no speedup."""
    notes: tuple[str, ...] = ()
    """What a careful reader should know."""
    hazards: tuple[str, ...] = ()
    """In which calls outside its domain the program is wrong without a word: one clause each."""
    generality: tuple[str, ...] = ()
    """What became of calls with inputs of other sizes, or laid out otherwise: right, an error, or silently wrong."""
    domain: Domain | None = None
    """What a correct program was verified for; None in records of older versions."""
    evidence: Evidence | None = None

    def __post_init__(self) -> None:
        # Programs and compilers have a say in these words, which go to terminals, pages and prompts.
        object.__setattr__(self, "detail", visible(self.detail))
        for name in ("degenerate", "notes", "hazards", "generality"):
            object.__setattr__(self, name, tuple(map(visible, getattr(self, name))))
        correct = self.outcome is Outcome.CORRECT
        if self.timing is not None and not correct:
            raise ValueError(f"a verdict of {self.outcome.value} cannot carry timing")
        if self.timing is not None and self.emulated:
            raise ValueError("an emulated verdict cannot carry timing")
        if self.workloads and not correct:
            raise ValueError(f"a verdict of {self.outcome.value} has no results by workload")
        if correct and not self.errors:
            raise ValueError("a correct verdict needs the error norms it rests on")
        if (self.outcome is Outcome.REJECTED) != bool(self.rule):
            raise ValueError("a rule is named exactly when the outcome is rejected")
        if not self.detail:
            raise ValueError("a verdict needs a sentence that says what happened")

    def __repr__(self) -> str:
        text = self.headline if self.timing is None else str(self.timing)
        return f"<Verdict {self.outcome.value}: {textwrap.shorten(text, 100, placeholder=' ...')}>"

    @property
    def speedup(self) -> float | None:
        return self.timing.speedup if self.timing else None

    @property
    def speedup_vs_best(self) -> float | None:
        return self.timing.speedup_vs_best if self.timing else None

    @property
    def score(self) -> float | None:
        return self.timing.score if self.timing else None

    @property
    def interval(self) -> tuple[float, float] | None:
        return self.timing.interval if self.timing else None

    @property
    def contended(self) -> bool:
        """Whether others used the machine while it was timed, so that its interval promises nothing."""
        return self.timing is not None and self.timing.contended > 0

    @property
    def contended_workloads(self) -> tuple[str, ...]:
        """The workloads that were timed while others used the machine."""
        return tuple(item.workload for item in self.workloads if item.timing is not None and item.timing.contended)

    @property
    def headline(self) -> str:
        """What happened in one line: the first of the detail, with what it announces."""
        lines = [line.strip() for line in self.detail.splitlines() if line.strip()]
        first = lines[0] if lines else ""
        if first.endswith(":") and len(lines) > 1:
            first = f"{first} {lines[1]}"
        return textwrap.shorten(first, 240, placeholder=" ...")

    @property
    def counts(self) -> bool:
        """Whether a speedup here may be counted as a win."""
        return self.outcome is Outcome.CORRECT and not self.degenerate


@dataclass(frozen=True)
class Image:
    """A picture: a profiler's window, a chart."""

    media_type: str
    """image/png, image/jpeg, image/webp or image/gif."""
    data: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if self.media_type not in ("image/png", "image/jpeg", "image/webp", "image/gif"):
            raise ValueError(f"{self.media_type!r} is no picture that models read: png, jpeg, webp, gif")


@dataclass(frozen=True)
class Artefact:
    """What a tool wrote, kept as it is: a table of counters, a trace."""

    name: str
    """A file name."""
    media_type: str
    data: bytes = field(repr=False)


@dataclass(frozen=True)
class Profile:
    """What one profiler saw of a candidate."""

    tool: str
    """The profiler's name."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Numbers by name."""
    text: str = field(default="", repr=False)
    """The tool's own words, as a person would read them."""
    images: tuple[Image, ...] = ()
    """Its windows."""
    absent: str = ""
    """Why it saw nothing; empty if it did."""
    raw: tuple[Artefact, ...] = ()
    """What the tool itself wrote, for whoever wants to look further; agents see the rest."""

    def __post_init__(self) -> None:
        # Names of kernels and files are a program's words.
        object.__setattr__(self, "text", visible(self.text))
        object.__setattr__(self, "absent", visible(self.absent))


@dataclass(frozen=True)
class Report:
    """The answer to a job."""

    job: str
    """The job's id."""
    problem: str
    """The problem's name."""
    candidate: str
    """The candidate's id."""
    platform: str
    verdict: Verdict
    profiles: tuple[Profile, ...] = ()
    """Of a correct candidate, where profilers were asked for."""
    seconds: dict[str, float] = field(default_factory=dict)
    """What it took where it was carried out: `verdict` and `profiles`, waiting for the device included, and `device`,
    how long the device was held, `device for profiles` of that; `room`, waiting for memory of the device beside other
    programs in hand; each profiler by its name. Empty where nobody measured it.
    """

    def __repr__(self) -> str:
        return f"<Report {self.job} on {self.candidate} for {self.problem}, {self.platform}: {self.verdict!r}>"
