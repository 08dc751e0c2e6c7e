"""Models that need no provider: command lines, mailboxes, records, scripts; and how all are named."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conditions import wait_until
from kforge.errors import ModelRejected, ModelUnavailable, NothingRecorded, PluginAbsent, UsageError
from kforge.models import keys
from kforge.models.base import Model, listen_for_waits
from kforge.models.factory import open_model
from kforge.models.plugins.command import Command
from kforge.models.plugins.mailbox import Mailbox, file_name
from kforge.models.plugins.replay import Replay
from kforge.models.recordings import Recording, read_exchanges
from kforge.models.scripted import Scripted
from kforge.models.secret_filter import LONGEST, scrub
from kforge.types import Completion, Finish, Image, Message, ModelSettings, Prompt, Usage

pytestmark = pytest.mark.pure

PNG = Image("image/png", b"\x89PNG\x00\xff pixels")


def asking(text: str, sample: str = "", images: tuple[Image, ...] = ()) -> Prompt:
    return Prompt((Message("user", text, images),), sample=sample)


def reply_of(model: Model, prompt: Prompt) -> Completion:
    async def talk() -> Completion:
        try:
            return await model.complete(prompt)
        finally:
            await model.close()

    return asyncio.run(talk())


def python(code: str, seconds: float = 20.0) -> Command:
    """A command that runs a few lines of Python, without site-packages to be quick."""
    return Command(shlex.join([sys.executable, "-I", "-S", "-c", code]), ModelSettings(timeout_seconds=seconds))


class TestNames:
    def test_nothing_heavy_is_loaded_before_a_model_is_opened(self) -> None:
        heavy = "{'pydantic_ai', 'torch', 'openai', 'genai_prices'}"
        code = f"import sys, kforge.models.factory; print({heavy} & set(sys.modules))"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "set()"

    @pytest.mark.parametrize("spec", ["", "gpt-5", "openai:", ":gpt-5", "mailbox:", "nosuchprovider:x"])
    def test_a_name_that_means_nothing_lists_the_forms(self, spec: str) -> None:
        with pytest.raises(UsageError) as caught:
            open_model(spec)
        for form in ("openai:gpt-5", "command:", "mailbox:DIR", "replay:FILE"):
            assert form in str(caught.value)

    def test_a_slip_of_the_pen_is_corrected(self) -> None:
        with pytest.raises(UsageError, match="Did you mean openai:gpt-5"):
            open_model("opnai:gpt-5")

    def test_builtin_is_no_model(self) -> None:
        with pytest.raises(UsageError, match="offline agents"):
            open_model("builtin")

    def test_forms_without_a_provider(self, tmp_path: Path) -> None:
        (tmp_path / "record").write_text("")
        specs = (f"mailbox:{tmp_path}", f"replay:{tmp_path}/record", "command:cat -u")
        assert tuple(open_model(spec).name for spec in specs) == specs


class TestKeys:
    @pytest.fixture(autouse=True)
    def no_keys(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in os.environ:
            if name.endswith(("_API_KEY", "_BASE_URL", "_TOKEN")) or name == keys.SERVER_KEY:
                monkeypatch.delenv(name)

    @pytest.mark.parametrize(
        "spec", ["openai:gpt-5", "openai-chat:gpt-5", "deepseek:x", "google-gla:gemini-2.5-pro", "zai:x"]
    )
    def test_a_missing_key_is_named_with_the_line_to_type(self, spec: str) -> None:
        variable = {"openai": "OPENAI", "deepseek": "DEEPSEEK", "google": "GOOGLE", "zai": "ZAI"}[
            spec.partition(":")[0].partition("-")[0]
        ]
        with pytest.raises(UsageError, match=f"export {variable}_API_KEY="):
            open_model(spec)

    def test_a_local_server_needs_an_address_and_no_key(self) -> None:
        with pytest.raises(UsageError, match="OLLAMA_BASE_URL"):
            open_model("ollama:qwen3")
        for spec in ("ollama:qwen3", "openai:qwen3", "anthropic:qwen3"):
            assert open_model(spec, ModelSettings(base_url="http://127.0.0.1:9/v1")).name == spec

    def test_a_client_that_is_not_installed_says_how_to_get_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("GROQ_API_KEY", "x")
        monkeypatch.setitem(sys.modules, "groq", None)
        with pytest.raises(PluginAbsent, match=r"pip install 'pydantic-ai-slim\[groq\]'"):
            open_model("groq:x")

    def test_the_first_key_that_is_set(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert keys.any_key() is None
        monkeypatch.setenv("GEMINI_API_KEY", "x")
        assert keys.any_key() == "google"
        monkeypatch.setenv("ANTHROPIC_API_KEY", "")
        assert keys.any_key() == "google", "an empty variable is not set"
        monkeypatch.setenv("ANTHROPIC_API_KEY", "x")
        assert keys.any_key() == "anthropic"

    def test_the_table_of_variables_agrees_with_pydantic_ai(self) -> None:
        from pydantic_ai.exceptions import UserError
        from pydantic_ai.providers import infer_provider

        named: dict[str, str] = {}
        for provider in keys._VARIABLES:
            try:
                infer_provider(provider)
            except UserError as error:
                named[provider] = keys.variable_named_in(error.message)
            except ImportError:
                continue
        assert len(named) >= 5
        assert named == {provider: keys.variables(provider)[0] for provider in named}


class TestScrubbing:
    def test_keys_go_wherever_they_come_from(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SOME_API_KEY", "plain-looking-value")
        message = "bad: plain-looking-value, sk-proj-abc123def456, sk-12****cdef, Bearer abcdefghijkl"
        assert scrub(message, asking("q")) == "bad: [...], [...], [...], [...]"

    def test_quotes_and_escapes_do_not_help(self) -> None:
        secret = 'def forward(self):\n    return self.hidden_recipe("yes")'
        said = scrub(f"bad input={secret!r}, and more", asking(secret))
        assert "recipe" not in said
        assert "forward" not in said
        assert said.startswith("bad input=")
        assert said.endswith("and more")

    @settings(deadline=None)
    @given(st.text(min_size=20, max_size=200))
    def test_a_prompt_that_is_repeated_is_hidden(self, text: str) -> None:
        word = "Zanzibar8675309roofline"
        shown = scrub(f"cannot do this: {text} {word}", asking(f"{text} {word}"))
        assert word not in shown
        assert shown.startswith("cannot do this:")

    @settings(deadline=None)
    @given(st.text(max_size=2000))
    def test_what_is_shown_is_one_short_line(self, message: str) -> None:
        shown = scrub(message, asking("something else entirely"))
        assert len(shown) <= LONGEST + 3
        assert len(shown.splitlines()) <= 1


class TestCommand:
    def test_prompt_in_reply_out(self) -> None:
        model = Command("tr a-z A-Z")
        completion = reply_of(model, Prompt((Message("system", "be loud"), Message("user", "ünï"))))
        assert completion.text == "BE LOUD\n\nüNï"
        assert completion.model == "command:tr a-z A-Z"
        assert (completion.usage.requests, completion.usage.unpriced, completion.usage.dollars) == (1, 1, 0.0)
        assert completion.usage.input_tokens > 0

    def test_no_shell_runs(self) -> None:
        assert reply_of(Command("echo '$HOME' ; ls"), asking("")).text == "$HOME ; ls\n"

    def test_images_are_files_named_at_the_end(self) -> None:
        code = "import sys; p = sys.stdin.read().split()[-1]; d = open(p, 'rb').read(); print(p); print(d.hex())"
        path, data = reply_of(python(code), asking("look", images=(PNG,))).text.split()
        assert bytes.fromhex(data) == PNG.data
        assert path.endswith(".png")
        assert not Path(path).exists(), "and are gone afterwards"

    @pytest.mark.parametrize(
        ("line", "says"), [("nosuchprogram -p", "nosuchprogram"), ("  ", "no program"), ("a 'b", "quot")]
    )
    def test_a_command_that_cannot_work_is_found_early(self, line: str, says: str) -> None:
        with pytest.raises(UsageError, match=says):
            Command(line)

    def test_failures_carry_the_last_lines_without_the_prompt(self) -> None:
        code = "import sys; t = sys.stdin.read(); sys.exit('noise\\n' * 50 + 'out of credit for ' + t)"
        with pytest.raises(ModelUnavailable, match=r"status 1.*out of credit") as caught:
            reply_of(python(code), asking("tell nobody about Zanzibar"))
        assert "Zanzibar" not in str(caught.value).partition("ended with")[2]
        with pytest.raises(ModelRejected, match="status 2"):
            reply_of(python("import sys; sys.exit(2)"), asking("q"))
        with pytest.raises(ModelUnavailable, match="SIGTERM"):
            reply_of(python("import os; os.kill(os.getpid(), 15)"), asking("q"))

    def test_a_timeout_ends_the_whole_family(self, tmp_path: Path) -> None:
        with pytest.raises(ModelUnavailable, match="within 5 s"):
            reply_of(_family(tmp_path, 5), asking("q"))
        _assert_gone(tmp_path)

    def test_cancelling_ends_the_whole_family(self, tmp_path: Path) -> None:
        async def interrupted() -> None:
            task = asyncio.create_task(_family(tmp_path, 60).complete(asking("q")))
            while not (tmp_path / "child").exists():
                await asyncio.sleep(0.02)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(interrupted())
        _assert_gone(tmp_path)


def _family(folder: Path, seconds: float) -> Command:
    """A command with a child; it notes both process numbers, and both sleep."""
    script = f"cd {shlex.quote(str(folder))}; sleep 60 & echo $$ > parent; echo $! > part; mv part child; wait"
    return Command(shlex.join(["sh", "-c", script]), ModelSettings(timeout_seconds=seconds))


def _assert_gone(folder: Path) -> None:
    for name in ("parent", "child"):
        process = int((folder / name).read_text())
        wait_until(lambda process=process: not _alive(process), f"the {name} is gone")


def _alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


class TestMailbox:
    def test_a_question_waits_for_its_answer(self, tmp_path: Path) -> None:
        prompt = asking("how?", "chain 0/step 1", (PNG,))

        async def talk() -> Completion:
            waiting = asyncio.create_task(Mailbox(tmp_path).complete(prompt))
            question = tmp_path / f"{file_name(prompt)}.prompt.md"
            while not question.exists():
                await asyncio.sleep(0.01)
            text = question.read_text()
            assert text.startswith("how?")
            picture = text.split()[-1]
            assert (tmp_path / picture).read_bytes() == PNG.data
            reply = tmp_path / f"{file_name(prompt)}.reply.md"
            reply.touch()
            await asyncio.sleep(0.25)
            assert not waiting.done(), "an empty file is no answer yet"
            with reply.open("w") as slow:
                for word in ("li", "ke", " th", "is"):
                    slow.write(word)
                    slow.flush()
                    await asyncio.sleep(0.11)
            return await waiting

        waits: list[str] = []
        with listen_for_waits(waits.append):
            completion = asyncio.run(talk())
        assert completion.text == "like this"
        assert waits == [str(tmp_path / f"{file_name(prompt)}.reply.md")], "it says what it waits for"
        assert (completion.usage.requests, completion.usage.unpriced) == (1, 1)
        assert "reply" in (tmp_path / "README.txt").read_text()

    def test_an_answer_that_is_there_is_used_and_nothing_is_asked(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        prompt = asking("how?", "0.1")
        reply = tmp_path / f"{file_name(prompt)}.reply.md"
        reply.write_text("so")
        os.utime(reply, (1, 1))
        monkeypatch.setattr("kforge.models.plugins.mailbox.POLL_SECONDS", 3600.0)
        completion = asyncio.run(asyncio.wait_for(Mailbox(tmp_path).complete(prompt), 30))
        assert completion.text == "so"
        assert not list(tmp_path.glob("*.prompt.md"))

    @settings(deadline=None)
    @given(st.text(max_size=300))
    def test_file_names_are_safe_and_differ(self, sample: str) -> None:
        name = file_name(asking("q", sample))
        assert set(name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.")
        assert len(name) < 120
        assert not name.startswith(".")
        assert name != file_name(asking("q", sample + "x"))

    def test_a_file_is_named_after_the_problem_which_is_no_part_of_the_question(self) -> None:
        prompt = asking("q", "0.1.1")
        named = replace(prompt, problem="23_Softmax/../x")
        assert named.id == prompt.id
        assert file_name(named) == f"23_Softmax_x.0_1_1.generate.{prompt.id}"

    def test_a_folder_that_cannot_be_made(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(UsageError, match="cannot be written"):
            Mailbox(tmp_path / "file" / "box")


class TestRecords:
    def test_what_was_recorded_comes_back_for_nothing(self, tmp_path: Path) -> None:
        paid = Completion("first\n\u2028line", "big:model", Usage(1, 10, 20, 0.5), Finish.LENGTH, seconds=3.0)
        path = tmp_path / "deep" / "record.jsonl"
        recording = Recording(Scripted([paid, "second", "third"]), path)
        for prompt in (asking("q1 12.3 ms", "0.1", (PNG,)), asking("q2", "0.2"), asking("again", "0.1")):
            reply_of(recording, prompt)
        replay = Replay(path)
        again = reply_of(replay, asking("q1 but 99 ms here", "0.1"))
        assert again == Completion(paid.text, "big:model", Usage(), Finish.LENGTH), "the first of a slot wins"
        assert reply_of(replay, asking("", "0.2")).text == "second"
        with pytest.raises(NothingRecorded, match=r"analyse '0\.1'"):
            reply_of(replay, Prompt((), "analyse", "0.1"))
        first = read_exchanges(path)[0]
        assert (first.prompt, first.usage) == ("q1 12.3 ms", paid.usage)
        assert first.images[0].startswith("image/png ")
        assert "PNG" not in path.read_text()
        assert path.stat().st_mode & 0o777 == 0o600

    @pytest.mark.parametrize("line", ["{", "[]", '{"purpose": "generate"}', '{"purpose": "sing"}'])
    def test_a_line_that_cannot_be_read_is_named(self, tmp_path: Path, line: str) -> None:
        path = tmp_path / "record"
        reply_of(Recording(Scripted(["x"]), path), asking("q"))
        path.write_text(path.read_text() + "\n" + line + "\n")
        with pytest.raises(UsageError, match="record:3:"):
            Replay(path)

    def test_files_that_cannot_be_used(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="cannot read"):
            Replay(tmp_path / "absent")
        with pytest.raises(UsageError, match="cannot record"):
            Recording(Scripted([]), tmp_path)

    def test_many_recordings_share_a_file(self, tmp_path: Path) -> None:
        path = tmp_path / "record"
        models = [Recording(Scripted(lambda prompt: prompt.sample * 5000), path) for _ in range(4)]

        async def all_at_once() -> None:
            tasks = [model.complete(asking("q", str(i))) for i, model in enumerate(models * 10)]
            await asyncio.gather(*tasks)

        asyncio.run(all_at_once())
        assert sorted(int(json.loads(line)["sample"]) for line in path.read_text().splitlines()) == list(range(40))


class TestScripts:
    def test_a_list_in_order_and_then_nothing(self) -> None:
        whole = Completion("b", "other", Usage(1, 2, 3))
        model = Scripted(["a", whole, ModelUnavailable("later")])
        assert reply_of(model, asking("1")) == Completion("a", "scripted")
        assert reply_of(model, asking("2")) == whole
        with pytest.raises(ModelUnavailable, match="later"):
            reply_of(model, asking("3"))
        with pytest.raises(NothingRecorded, match="no reply left"):
            reply_of(model, asking("4"))
        assert [prompt.text for prompt in model.asked] == ["1", "2", "3", "4"]
        assert model.closed

    def test_a_function_of_the_prompt(self) -> None:
        def answer(prompt: Prompt) -> Any:
            return prompt.text[::-1]

        assert reply_of(Scripted(answer, name="mirror"), asking("abc")) == Completion("cba", "mirror")
