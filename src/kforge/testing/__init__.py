"""Contract tests: what every platform must prove, KForge's own and a third party's alike.

    with Contract("./mine") as contract:
        for finding in contract.findings():
            print(finding.mark, finding.clause, finding.said)

`kforge platform check` prints the same; a platform made by `kforge platform new` has a test that asks for each clause.
"""

from __future__ import annotations

from kforge.testing.clauses import Broken, Clause, ClauseResult, ClauseState
from kforge.testing.contract import CLAUSES, Contract

__all__ = ["CLAUSES", "Broken", "Clause", "ClauseResult", "ClauseState", "Contract"]
