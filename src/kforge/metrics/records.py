"""What is said of a set of trials, and of two of them side by side."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from kforge.types import Usage

Against = Literal["eager", "best"]
"""eager: PyTorch as it is; best: the fastest baseline there is, torch.compile included."""
AGAINST: tuple[Against, ...] = ("eager", "best")
STATES = ("generation_failure", "compilation_failure", "runtime_error", "mismatch", "rejected", "correct")
"""How a program can end, from worst to best."""


@dataclass(frozen=True)
class Share:
    """A share of problems, or a mean of what each is worth between 0 and 1, with its 95 % interval."""

    value: float
    low: float
    high: float
    of: int
    """How many problems it is a share of."""


@dataclass(frozen=True)
class Mean:
    """A geometric mean over problems, with its 95 % interval."""

    value: float
    low: float
    high: float
    """For one problem, or where all have the same value, the ends are the value: nothing is known of the spread."""
    of: int


@dataclass(frozen=True)
class Point:
    """fast_p at one p."""

    p: float
    share: Share


@dataclass(frozen=True)
class Iteration:
    """How chains stood after that many programs, by state."""

    number: int
    """The number of the program in its chain, from 1."""
    reached: dict[str, float]
    """Share of chains by the best state among their first `number` programs; a chain that ended keeps its state."""
    own: dict[str, int]
    """Programs number `number` themselves, by state; only of chains that came so far."""
    correct: Share | None = None
    """Share of problems with a correct program by then."""
    fast: dict[str, tuple[Point, ...]] = field(default_factory=dict)
    """As a summary's, for who stopped then and took the best program so far: by its verdict in the run."""
    mean_correct: dict[str, Mean] = field(default_factory=dict)
    """As a summary's, likewise."""


@dataclass(frozen=True)
class Summary:
    """One configuration on one platform. A problem that does not count is in none of the figures, and is listed."""

    platform: str
    configuration: str
    problems: tuple[str, ...]
    """Keys of those that count: sound, and worked on to the end."""
    unfinished: dict[str, str] = field(default_factory=dict)
    """Problems whose trials are not through, and why."""
    unusable: dict[str, str] = field(default_factory=dict)
    """Problems that could not be judged, and why."""
    degenerate: dict[str, str] = field(default_factory=dict)
    """Problems on which a win means nothing, and why."""
    partial: dict[str, str] = field(default_factory=dict)
    """Problems that count although some of their repetitions are not through, and why."""
    unconfirmed: dict[str, str] = field(default_factory=dict)
    """Problems whose winner was not correct when it was judged once more, and what it was: it counts as that."""
    emulated: bool = False
    """Whether programs were verified in emulation: then nothing was timed."""
    timed: bool = True
    """Whether any program was timed."""
    outcomes: dict[str, int] = field(default_factory=dict)
    """Trials that count, by the state they ended in."""
    correct: Share | None = None
    """fast_0; None where no problem counts."""
    iterations: tuple[Iteration, ...] = ()
    fast: dict[str, tuple[Point, ...]] = field(default_factory=dict)
    """fast_p against eager and against the best baseline, over rising p; a baseline is missing where programs are
    correct and none was timed against it. Where none is correct, both are there, and 0.
    """
    untimed: dict[str, int] = field(default_factory=dict)
    """Correct programs without a speedup against that baseline: they are in fast_0, and above that count as slow."""
    mean_correct: dict[str, Mean] = field(default_factory=dict)
    """Geometric mean speedup of correct programs."""
    mean_fallback: dict[str, Mean] = field(default_factory=dict)
    """Geometric mean speedup over all problems, the baseline kept wherever the program is wrong or slower: 1 where
    none is correct.
    """
    pass_at: dict[int, float] = field(default_factory=dict)
    """pass@k over chains."""
    usage: Usage = Usage()
    """Usage of all its trials, those that do not count included."""
    seconds: float = 0.0
    """Time of models and judge, of all its trials."""
    correct_kernels: int = 0
    """Trials with a correct program, unfinished ones included, degenerate problems not: what the cost bought."""
    tokens_per_correct: float | None = None
    dollars_per_correct: float | None = None
    """Dollars; None where nothing is correct, or a price is not known."""
    seconds_per_correct: float | None = None
    score: Share | None = None
    """Mean score against the machine's limit, 0 where a program is wrong; None where no program's is known."""
    scored: int = 0
    """Correct programs whose score is known; those without one are in no mean."""
    custom_share: float | None = None
    """Median share of time that winners spend in code of their own."""
    own_code_only: Share | None = None
    """Winners that spend nearly all of their time (95 %) in code of their own."""
    roofline_share: float | None = None
    """Median share of the roofline that winners reach, where it is known."""
    roofline_of: int = 0
    """For how many winners that share is known."""


Question = Literal["correct", "speedup vs eager", "speedup vs best", "fall-back vs eager"]
QUESTIONS: tuple[Question, ...] = ("correct", "speedup vs eager", "speedup vs best", "fall-back vs eager")
"""correct: share of problems; speedup: on problems that are correct on both sides; fall-back: on all of them, for who
keeps the baseline wherever the program is wrong or slower.
"""


@dataclass(frozen=True)
class PairedDifference:
    """One question put to two sets of trials on the same problems."""

    question: Question
    a: float
    b: float
    """The figure of each side over the common problems."""
    effect: float
    """b over a for speedups, b minus a for shares."""
    low: float
    high: float
    """The effect's interval at `level`."""
    level: float
    """The interval's level; higher than 0.95 where several questions are asked at once."""
    pairs: int
    wins: int
    """Problems where b is better."""
    losses: int
    ties: int
    sign_p: float
    """Two-sided sign test over problems that are not tied, adjusted for the number of questions."""
    shown: bool
    """Whether both the interval and the sign test speak for a difference, in the same direction."""
    same_program: int = 0
    """Of the ties, those where both sides have the same program, whatever was measured of it."""


@dataclass(frozen=True)
class ProblemPair:
    """One problem on both sides."""

    problem: str
    a: float | None
    b: float | None
    """Speedups against eager, over repetitions their geometric mean; None where not correct, or not timed."""
    a_state: str
    b_state: str
    """The best state of any repetition."""
    ratio: float | None
    """b over a, where both are known; 1 where both sides have the same program, whatever was measured of it."""
    a_correct: float = 0.0
    b_correct: float = 0.0
    """The share of repetitions that are correct."""
    same_program: bool = False
    """Whether the winners of both sides are one text; over repetitions, the same texts in the same shares."""


@dataclass(frozen=True)
class Comparison:
    """Two configurations, paired by problem."""

    a: str
    b: str
    """What the sides are called."""
    pairs: tuple[ProblemPair, ...]
    differences: tuple[PairedDifference, ...]
    questions: int
    """How many questions were asked at once, over all comparisons made together: intervals and tests allow for it."""
    alone_a: tuple[str, ...] = ()
    """Problems that only one side has, or has finished: not compared."""
    alone_b: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """What a careful reader should know: different machines, emulation, few pairs."""
