"""What can go wrong with KForge itself.

A bad candidate is data (a `Verdict`); only a broken harness, a bad problem or a bad request raises.

    KForgeError
    ├── UsageError              the request makes no sense: a missing file, an unknown option value
    │   └── UnknownPlugin       no plug-in of that name, with the names there are; or one that is not of its kind
    ├── ProblemError            the problem file is unusable: names file, line and what is missing
    ├── PluginAbsent            the plug-in exists, and this machine lacks what it needs
    ├── ModelError              a model gave no reply
    │   ├── ModelRejected       asking again cannot help: wrong key, unknown model, a malformed request
    │   ├── ModelUnavailable    asking again may help: rate limit, overload, a broken connection, a timeout
    │   ├── NothingRecorded     a replay has no reply for this question
    │   └── BudgetSpent         the run's budget does not allow another request
    ├── PromptTooLong           the prompt does not fit the ceiling, and what is left may not be cut
    ├── StoreError              the store cannot be read or written: a full disk, a read-only folder, a lost database
    │   └── RunBusy             another process is working on that run
    ├── SandboxUnavailable      no sandbox of the requested level can be made here
    ├── WireError               a value cannot cross a process boundary, or a record cannot be read back
    ├── ReportAwaited           no fault: a job is in other hands and has no report yet (execution/base.py)
    └── HarnessError            KForge's own fault or the machine's: the judge could not do its work
        └── PlatformFault       a method of a platform raised: names the platform, the method and where
"""

from __future__ import annotations


class KForgeError(Exception):
    """The root of every exception KForge raises on purpose."""


class UsageError(KForgeError):
    """The request cannot be carried out as asked."""


class UnknownPlugin(UsageError):
    """Nothing is registered under that name, or nothing that can be used as that kind of plug-in."""


class ProblemError(KForgeError):
    """A problem file or module cannot be used; the message names the file, the line and the cure."""

    def __init__(self, message: str, *, path: str = "", line: int | None = None) -> None:
        where = path if line is None else f"{path}:{line}"
        super().__init__(f"{where}: {message}" if where else message)
        self.path = path
        self.line = line


class PluginAbsent(KForgeError):
    """The plug-in is known, and this machine lacks what it needs."""


class ModelError(KForgeError):
    """A model gave no reply; the message names the model and never a key or a prompt."""


class ModelRejected(ModelError):
    """The provider refuses the request itself; the same request will be refused again."""


class ModelUnavailable(ModelError):
    """The provider cannot answer now."""

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        """Seconds the provider asked to wait, if it said so."""


class NothingRecorded(ModelError):
    """A recording holds no reply for what is asked."""


class BudgetSpent(ModelError):
    """Another request would go beyond the budget."""


class PromptTooLong(KForgeError):
    """The prompt's sources alone exceed the ceiling; they are never cut."""


class StoreError(KForgeError):
    """The store cannot do what was asked; the message says what to do."""


class RunBusy(StoreError):
    """Another process holds the run."""


class SandboxUnavailable(KForgeError):
    """The requested sandbox level cannot be had on this machine."""


class WireError(KForgeError):
    """A value cannot be written to, or read from, its JSON form."""


class HarnessError(KForgeError):
    """The judge itself failed; nothing is said about the candidate."""


class PlatformFault(HarnessError):
    """A method of a platform raised; the message names both, with the last lines of the traceback."""
