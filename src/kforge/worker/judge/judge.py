"""The judge: one per device, warm, for many candidates."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from types import TracebackType

import torch

from kforge import registry
from kforge.cache_folder import cache_folder
from kforge.errors import KForgeError, PluginAbsent, ProblemError
from kforge.platforms.face import Platform
from kforge.types import Candidate, Job, Outcome, Problem, Profile, Report, Settings, Verdict
from kforge.worker.judge.evaluation import Evaluation, Progress
from kforge.worker.judge.nursery import Nursery
from kforge.worker.judge.profiling import Workshop
from kforge.worker.judge.session import Session
from kforge.worker.sandbox import kernel, levels

_KEPT_SESSIONS = 3


class Judge:
    """Evaluates candidates on one platform. Use it as a context manager, or close it."""

    def __init__(self, platform: str = "cpu") -> None:
        self._platform: Platform = registry.load("platforms", platform)
        reason = self._platform.absent_because()
        if reason:
            raise PluginAbsent(f"platform {platform}: {reason}")
        self._nurseries: dict[str, Nursery] = {}
        self._trusted = Nursery(platform, "process", _trusted_environment())
        self._sessions: OrderedDict[tuple[object, ...], Session] = OrderedDict()
        self._secret = secrets.randbits(48)

    def evaluate(
        self,
        problem: Problem,
        candidate: Candidate,
        settings: Settings | None = None,
        progress: Progress = lambda _: None,
    ) -> Verdict:
        """The verdict on one candidate. Raises only if the problem or the harness is at fault."""
        settings = settings or Settings()
        nursery = self._nursery(levels.choose(settings.sandbox))
        for needed in (nursery, self._trusted):
            needed.launch()
        progress("reading the problem")
        session = self.session(problem, settings)
        return Evaluation(
            session, candidate, settings, self._platform, nursery, nursery.known_folders(), progress
        ).verdict()

    def report(self, job: Job, progress: Progress = lambda _: None) -> Report:
        """The verdict on a job and, of a correct candidate, the profiles it asks for. Raises as `evaluate` does."""
        verdict = self.evaluate(job.problem, job.candidate, job.settings, progress)
        profiles: tuple[Profile, ...] = ()
        if verdict.outcome is Outcome.CORRECT and job.settings.profilers:
            progress("profiling")
            profiles = self._profiles(job, verdict)
        return Report(job.id, job.problem.name, job.candidate.id, job.candidate.platform, verdict, profiles)

    def _profiles(self, job: Job, verdict: Verdict) -> tuple[Profile, ...]:
        nursery = self._nursery(levels.choose(job.settings.sandbox))
        session = self.session(job.problem, job.settings)
        workshop = Workshop(session, job.candidate, job.settings, verdict, self._platform, nursery, self._trusted)
        with session.book.quiet():
            return workshop.profiles(job.settings.profilers)

    def session(self, problem: Problem, settings: Settings) -> Session:
        """What is known of a problem, from before or made now."""
        seed = self._secret if settings.seed is None else settings.seed
        key = (problem.id, tuple(problem.distributions), seed)
        if key in self._sessions:
            self._sessions.move_to_end(key)
            return self._sessions[key]
        while len(self._sessions) >= _KEPT_SESSIONS:
            self._sessions.popitem(last=False)[1].close()
        try:
            session = Session(problem, self._platform.device_class, self._trusted, settings, seed)
        except KForgeError:
            raise
        except Exception as error:
            what = f"cannot be judged: {type(error).__name__}: {error}"
            raise ProblemError(what, path=problem.path or problem.name) from error
        self._sessions[key] = session
        return session

    def close(self) -> None:
        # Another thread may be in the middle of a judgement that is being broken off.
        for session in list(self._sessions.values()):
            session.close()
        self._sessions.clear()
        for nursery in [*list(self._nurseries.values()), self._trusted]:
            nursery.close()
        self._nurseries.clear()

    def __enter__(self) -> Judge:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _nursery(self, level: str) -> Nursery:
        if level not in self._nurseries:
            if level == "process":
                # Nothing but this keeps a process of the same user from reading our memory and environment.
                _close_to_others()
            self._nurseries[level] = Nursery(self._platform.name, level)
        return self._nurseries[level]


def _trusted_environment() -> dict[str, str]:
    """Baselines may keep what torch.compile built from one run to the next; candidates never see that folder."""
    folder = cache_folder() / f"inductor-{torch.__version__}"
    return {"TORCHINDUCTOR_CACHE_DIR": str(folder), "TORCHINDUCTOR_COMPILE_THREADS": "1"}


def _close_to_others() -> None:
    try:
        kernel.set_dumpable(False)
    except (AttributeError, OSError):
        # Not Linux.
        pass
