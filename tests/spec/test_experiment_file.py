"""Experiment files: what they come to, and every mistake in them said at once, with its line."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kforge import jsonable, registry
from kforge.errors import PluginAbsent, UsageError
from kforge.platforms.base import Platform
from kforge.problems import BUNDLED
from kforge.problems.selection import Selection
from kforge.profilers.trace_view import TraceView
from kforge.spec.experiment_file import KEYS, read_experiment
from kforge.spec.experiment_options import ExperimentOptions
from kforge.spec.experiment_spec import make_experiment
from kforge.spec.mistakes import Mistaken
from kforge.spec.presets import PRESETS
from kforge.spec.profiling_modes import no_profile_reason, profilers_for
from kforge.spec.run_spec import make_spec
from kforge.spec.validation import CONFIGURATION_OPTIONS
from kforge.types import Budget, Configuration, Experiment, Problem, RunSpec

pytestmark = pytest.mark.pure

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples" / "experiments").glob("*.toml"))
PLACE = str(min((BUNDLED / "level1").glob("*.py")))
PROBLEM = """\
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return nn.functional.{}(x)


def get_inputs():
    return []


def get_init_inputs():
    return []
"""


def spec_of(configuration: Configuration, platform: str, **options: Any) -> RunSpec:
    problem = Problem("p", "class Model: ...")
    return make_spec(problem, platform, configuration.models, {**configuration.options, **options})


@pytest.fixture(autouse=True)
def pictures(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Whether pictures can be taken, on any machine: put a reason in."""
    state = {"reason": ""}
    monkeypatch.setattr(TraceView, "unavailable_reason", lambda _: state["reason"])
    return state


def written(folder: Path, text: str) -> Path:
    (folder / "problems").mkdir()
    for name in ("relu", "gelu", "max_pool3d"):
        (folder / "problems" / f"{name}.py").write_text(PROBLEM.format(name))
    (folder / "mine.toml").write_text(text)
    return folder / "mine.toml"


def names(experiment: Experiment) -> list[str]:
    return [configuration.name for configuration in experiment.configurations]


def asked(**words: Any) -> ExperimentOptions:
    return ExperimentOptions((PLACE,), **words)


def mistakes(**words: Any) -> list[str]:
    with pytest.raises(Mistaken) as caught:
        make_experiment(asked(**words))
    return [mistake.sentence for mistake in caught.value.mistakes]


FULL = """\
suite = "problems"
only = ["relu", "gelu"]
limit = 2
platforms = ["cpu"]
models = ["openai:gpt-5", "anthropic:claude"]
seeds = [0, 7]
budget = 20
budget_tokens = 1_000_000
confirm = false
presets = ["single-shot"]

[defaults]
iterations = 3
seeds = 4
temperature = 0.5
reference = "other.cu"

[configurations.text]
profiling = "text"
plateau = 1

[configurations.crew]
models = ["openai:gpt-5", "command:claude -p"]
profilers = ["roofline"]
reference = "inductor"
"""


def test_a_whole_file(tmp_path: Path) -> None:
    (tmp_path / "other.cu").write_text("// a kernel\n")
    made = read_experiment(written(tmp_path, FULL))
    assert made.name == "mine"
    assert list(made.problems) == ["gelu", "relu"]
    assert (made.suite, made.platforms, made.seeds, made.confirm) == ("problems", ("cpu",), (0, 7), False)
    assert made.budget == Budget(20, 1_000_000)
    assert names(made) == [
        "single-shot · openai:gpt-5",
        "single-shot · anthropic:claude",
        "text · openai:gpt-5",
        "text · anthropic:claude",
        "crew",
    ]
    common = {"seeds": 4, "temperature": 0.5}
    other = str((tmp_path / "other.cu").resolve())
    assert made.configurations[1] == Configuration(
        "single-shot · anthropic:claude", ("anthropic:claude",), {**common, "iterations": 1, "profiling": "none"}
    )
    text, crew = made.configurations[2], made.configurations[4]
    assert text.options == {**common, "iterations": 3, "reference": other, "profiling": "text", "plateau": 1}
    assert crew.models == ("openai:gpt-5", "command:claude -p")
    assert len(list(made.cells())) == 2 * 1 * 2 * 5

    options = spec_of(text, "cpu", seed=7)
    assert (options.plan.iterations, options.plan.plateau, options.plan.seed) == (3, 1, 7)
    assert (options.settings.seeds, options.settings.seed, options.model_settings.temperature) == (4, None, 0.5)
    assert options.profilers == ("torch_profiler", "roofline", "compiler_remarks")
    assert spec_of(crew, "cpu").profilers == ("roofline",)


WRONG = """\
suit = "problems"
limit = 0
platforms = "cdua"
models = ["gpt-5"]
iterations = 5
seeds = [0, 0]
budget = "much"
executor = "cloud"
presets = ["profiling-ablaton"]
model = "builtin"

[defaults]
iteration = 5
samples = "two"
style = "baroque"
budget = 3

[configurations.text]
profiling = "texts"
plateau = 0
search = "climb"

[configurations."a b"]
profilers = ["tarot"]
profiling = "text"
model = 3
reference = "./no/such.cu"
"""
EXPECTED = {
    1: "there is no key 'suit'; did you mean suite?",
    2: "limit must be at least 1",
    3: "no platform is called 'cdua'",
    4: "'gpt-5' names no model: write provider:model",
    5: "iterations is an option of configurations: it stands in [defaults]",
    6: "seeds has 0 twice",
    7: "budget must be a number, and is 'much'",
    8: "no executor is called 'cloud'",
    9: "no preset is called 'profiling-ablaton'; did you mean profiling-ablation?",
    10: "there is no key 'model' at the top; it is called models",
    13: "there is no option 'iteration'; did you mean iterations?",
    14: "samples must be a whole number, and is 'two'",
    15: "no prompt style is called 'baroque'",
    16: "budget is for all of the experiment: it stands at the top",
    19: "profiling must be one of none, text, image, and is 'texts'",
    20: "repairs and plateau must be at least 1",
    21: "no search is called 'climb'",
    24: "no profiler is called 'tarot'",
    26: "model must be a text or a list of texts",
    27: "reference: there is no file ./no/such.cu",
}


def test_all_mistakes_are_said_at_once_with_their_lines(tmp_path: Path) -> None:
    path = written(tmp_path, WRONG)
    with pytest.raises(Mistaken) as caught:
        read_experiment(path)
    title, *lines = str(caught.value).splitlines()
    assert title == f"{path} has {len(EXPECTED) + 1} mistakes:"
    for number, words in EXPECTED.items():
        assert any(line.startswith(f"  line {number}: {words}") for line in lines), (number, words, lines)
    assert any("profiling and profilers both say" in line for line in lines)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('suite = "bundled"\nlevels = [1, 9]\n', ":2: there is no level 9 in the suite"),
        ('suite = "nowhere"\n', ":1: nowhere: there is no such file or folder"),
        (
            'suite = "problems"\nonly = "rellu"\n',
            ":2: only 'rellu' names no problem of the suite; did you mean 'relu'",
        ),
        ('suite = "problems"\n\n[configurations.a]\niterations = 0\n', ":4: iterations and samples must be at least 1"),
        ('suite = "problems"\n[configurations]\na = 3\n', ":3: a configuration is a table: [configurations.a]"),
        ('suite = "problems"\ndefaults = 3\n', ":2: defaults must be a table"),
        ('suite = "problems"\nseeds = []\n', ":2: seeds is empty"),
        ('suite = "problems"\nseeds = [true]\n', ":2: seeds must be a list of whole numbers"),
        ('suite = "problems"\n[defaults]\nsamples = 2\n', "the offline agents always write the same"),
        ('suite = "problems"\n[defaults]\nsanitize = 1\n', ":3: sanitize must be true or false, and is 1"),
        ("platforms = ['cpu']\n", "suite is missing"),
        ("suite = \n", "not valid TOML: Invalid value (at line 1"),
    ],
)
def test_one_mistake_is_one_line(tmp_path: Path, text: str, words: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(UsageError) as caught:
        read_experiment(path)
    assert str(caught.value).startswith(str(path))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        read_experiment(tmp_path / "none.toml")


def test_without_configurations_there_is_one_for_each_model() -> None:
    made = make_experiment(asked(defaults={"iterations": 2, "samples": None, "profilers": ("roofline",)}))
    assert made.configurations == (
        Configuration("builtin", ("builtin",), {"iterations": 2, "profilers": ["roofline"]}),
    )
    assert jsonable.decode(Experiment, json.loads(json.dumps(jsonable.encode(made)))) == made, "a store keeps it so"
    assert made.name == f"{PLACE} on cpu"
    assert names(make_experiment(asked(models=("a:b", "c:d")))) == ["a:b", "c:d"]


def test_presets_say_what_they_are_for_and_keep_what_makes_them() -> None:
    assert list(PRESETS) == [
        "single-shot",
        "iterative",
        "iterative+reference",
        "profiling-ablation",
        "prompt-ablation",
        "transfer",
    ]
    defaults = {"iterations": 3, "reference": "metal", "profilers": ("roofline",), "samples": 2}
    for preset in PRESETS.values():
        assert preset.what.endswith(".")
        assert preset.answers.endswith(".")
        for configuration in preset.configurations(defaults):
            assert configuration.options["samples"] == 2
            assert configuration.options["iterations"] == (1 if "single" in configuration.name else 3)
            spec_of(replace(configuration, models=("scripted:a",)), "cpu")

    def options(name: str, defaults: dict[str, Any]) -> list[dict[str, Any]]:
        return [item.options for item in PRESETS[name].configurations(defaults)]

    assert options("single-shot", {}) == [{"iterations": 1, "profiling": "none"}]
    assert options("iterative", {}) == [{"iterations": 5}]
    assert options("iterative", {"reference": "cuda"}) == [{"iterations": 5}]
    assert options("iterative+reference", {}) == [{"iterations": 5, "reference": "inductor"}]
    assert options("iterative+reference", {"reference": "cuda"}) == [{"iterations": 5, "reference": "cuda"}]
    assert [item["style"] for item in options("prompt-ablation", {"style": "plain"})] == ["structured", "plain"]
    ablation = options("profiling-ablation", {"profilers": ("roofline",)})
    assert [item["profiling"] for item in ablation] == ["none", "text", "image"]
    assert not any("profilers" in item for item in ablation)
    without, using = options("transfer", {})
    assert "reference" not in without
    assert using == {**without, "reference": "cuda"}


def test_presets_together_have_each_configuration_once() -> None:
    made = make_experiment(asked(models=("a:b",), presets=("single-shot", "transfer", "iterative", "iterative")))
    assert names(made) == ["single-shot", "single-shot+reference", "iterative"]
    clash = {"iterative": {"iterations": 2}}
    assert mistakes(models=("a:b",), presets=("iterative",), configurations=clash) == [
        "two configurations are called 'iterative': rename one"
    ]
    same = {"iterative": {"iterations": 5}}
    assert names(make_experiment(asked(presets=("iterative",), configurations=same))) == ["iterative"]


def test_a_word_that_no_configuration_takes_is_a_mistake() -> None:
    assert mistakes(presets=("single-shot",), defaults={"iterations": 3}) == [
        "iterations = 3 is taken by no configuration: single-shot"
    ]
    (said,) = mistakes(models=("a:b",), presets=("iterative",), defaults={"reference": "inductor"})
    assert said.startswith("reference = 'inductor' is taken by no configuration: iterative; iterative+reference is")
    both = make_experiment(asked(presets=("single-shot", "iterative"), defaults={"iterations": 3, "reference": ""}))
    assert names(both) == ["single-shot", "iterative"]


def test_presets_that_the_offline_agents_cannot_take_part_in() -> None:
    for name in ("prompt-ablation", "transfer", "iterative+reference"):
        (said,) = mistakes(presets=(name,))
        assert said.startswith(f"{name} takes a language model: the offline agents read no")
    both = make_experiment(
        asked(models=("a:b",), presets=("prompt-ablation",), configurations={"offline": {"model": "builtin"}})
    )
    assert names(both) == ["prompt structured", "prompt plain", "offline"]
    assert both.configurations[2].models == ("builtin",)
    (said,) = mistakes(models=("a:b",), presets=("transfer",), platforms=("cuda",))
    assert said.startswith("transfer: the reference is from the platform itself")


def test_pictures_are_left_out_where_none_can_be_taken(pictures: dict[str, str]) -> None:
    said: list[str] = []
    assert names(make_experiment(asked(presets=("profiling-ablation",)), said.append)) == [
        "profiling none",
        "profiling text",
        "profiling image",
    ]
    assert said == []
    pictures["reason"] = "no browser"
    made = make_experiment(asked(presets=("profiling-ablation",)), said.append)
    assert names(made) == ["profiling none", "profiling text"]
    assert said == ["profiling image is left out: trace_view: no browser"]
    assert mistakes(configurations={"seen": {"profiling": "image"}}) == ["profiling image: trace_view: no browser"]
    assert mistakes(defaults={"profiling": "image"}) == ["profiling image: trace_view: no browser"]
    with pytest.raises(PluginAbsent, match="no browser"):
        spec_of(Configuration("seen", options={"profiling": "image"}), "cpu")
    elsewhere = asked(presets=("profiling-ablation",), executor="bundle:jobs")
    assert len(make_experiment(elsewhere).configurations) == 3


class Bare(Platform):
    name = "bare"


class Pictured(Platform):
    name = "pictured"
    profilers = ("instruments", "roofline")


class Emulated(Platform):
    name = "emulated"
    emulated = True


def test_profiling_in_one_word(pictures: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    cpu, instruments = registry.load("platforms", "cpu"), registry.load("profilers", "instruments")
    monkeypatch.setattr(type(instruments), "unavailable_reason", lambda _: "needs a Mac")
    assert profilers_for("none", cpu) == ()
    assert profilers_for("text", cpu) == cpu.profilers
    assert profilers_for("image", cpu) == ("trace_view",)
    assert profilers_for("text", Pictured()) == ("roofline",)
    assert profilers_for("image", Pictured()) == ("trace_view",)
    assert profilers_for("image", Pictured(), here=False) == ("instruments",)
    monkeypatch.setattr(type(instruments), "unavailable_reason", lambda _: "")
    assert profilers_for("image", Pictured()) == ("instruments",)
    assert no_profile_reason("none", Emulated()) == ""
    assert "never profiled" in no_profile_reason("text", Emulated())
    assert "no profiler of its own" in no_profile_reason("text", Bare())
    assert no_profile_reason("text", cpu) == ""
    pictures["reason"] = "no browser"
    assert no_profile_reason("image", Bare()) == "trace_view: no browser"


def test_an_ablation_with_nothing_to_compare_is_a_mistake(
    pictures: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pictures["reason"] = "no browser"
    monkeypatch.setattr(type(registry.load("platforms", "cpu")), "profilers", ())
    (said,) = mistakes(presets=("profiling-ablation",))
    assert said.startswith("profiling-ablation has nothing to compare here: profiling text is left out")


def test_problems_without_a_reference_on_metal_are_said_and_kept(tmp_path: Path) -> None:
    said: list[str] = []
    text = 'suite = "problems"\nplatforms = ["metal"]\n'
    path = written(tmp_path, text)
    assert len(read_experiment(path, said.append).problems) == 3
    assert len(said) == 1
    assert said[0].startswith("1 of 3 problems have no reference on the hardware of metal (the first uses MaxPool3d")
    path.write_text(text + 'without = ["metal"]\n')
    made = read_experiment(path, said.append)
    assert list(made.left_out) == ["max_pool3d"]
    assert len(said) == 1


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_can_be_read(path: Path) -> None:
    made = read_experiment(path)
    assert len(made.configurations) >= 2, "an example compares something"
    for configuration in made.configurations:
        for platform in made.platforms:
            spec_of(configuration, platform, executor=made.executor)


def test_there_is_an_example_of_each_kind() -> None:
    stems = {path.stem for path in EXAMPLES}
    assert stems >= {"quick_offline", "profiling_ablation", "prompt_ablation", "transfer"}


def test_the_page_names_every_key_option_and_preset() -> None:
    page = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8")
    for word in (*KEYS, *CONFIGURATION_OPTIONS, *PRESETS, "defaults", "configurations"):
        assert f"`{word}`" in page, word


def test_mistakes_are_found_without_torch(tmp_path: Path) -> None:
    path = written(tmp_path, WRONG)
    code = (
        "import sys\nfrom kforge.spec.experiment_file import read_experiment\n"
        f"try:\n    read_experiment({str(path)!r})\nexcept Exception as error:\n    print(type(error).__name__)\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["Mistaken", "False"]


def test_a_choice_reaches_the_suite() -> None:
    made = make_experiment(ExperimentOptions(("bundled",), choice=Selection(levels=(2,), limit=2)))
    assert [problem.level for problem in made.problems.values()] == [2, 2]


def test_a_recording_answers_one_problem_only() -> None:
    with pytest.raises(Mistaken, match="a recording holds one problem, and there are 2"):
        make_experiment(ExperimentOptions(("bundled",), choice=Selection(limit=2), models=("replay:r.jsonl",)))
    assert make_experiment(ExperimentOptions(("bundled",), choice=Selection(limit=1), models=("replay:r.jsonl",)))


def test_a_budget_that_is_no_number_and_a_name_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(Mistaken, match="budget must be a number that is not negative"):
        make_experiment(ExperimentOptions(("bundled",), budget=float("nan")))
    with pytest.raises(Mistaken, match="a configuration needs a name"):
        read_experiment(written(tmp_path, 'suite = "bundled"\n[configurations.""]\niterations = 1\n'))
