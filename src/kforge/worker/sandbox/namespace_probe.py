"""A trial of the namespaces that each runner gets, in a process of its own: entering them cannot be undone."""

from __future__ import annotations

import os
import sys

from kforge.worker.sandbox import private

REFUSED = 3
"""Exit status where the kernel refuses; any other but 0 is a fault of the trial itself."""


def main() -> int:
    try:
        private.enter_namespaces()
        child = os.fork()
    except OSError as error:
        return _refuse(error)
    if child == 0:
        # Never back into the caller's stack: what is left there to clean up is the parent's.
        status = 1
        try:
            private.mount_own_folders(private.Allowance(1 << 30, 1 << 20, 64))
            status = 0
        except OSError as error:
            status = _refuse(error)
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        # To end as the child did: a filter of system calls may kill whom it refuses something.
        os.kill(os.getpid(), os.WTERMSIG(status))
    return os.waitstatus_to_exitcode(status)


def _refuse(error: OSError) -> int:
    print(error, file=sys.stderr, flush=True)
    return REFUSED
