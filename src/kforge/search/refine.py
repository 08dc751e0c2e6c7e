"""The paper's loop: repair until correct, then optimise; go back to the best correct program when repairs fail.

    fresh ──> failed ──> repair ──> failed ... after `repairs` of them: back to the best correct, or fresh
      │                    │
      └──> correct <───────┘
             └──> optimise (from the best correct program, with the analyst's advice)

A chain ends after `iterations` programs, when the target is reached anywhere in the run, or on a plateau. Where
programs are emulated it ends with the first that is correct: there is no time to make shorter.
"""

from __future__ import annotations

from kforge.types import Attempt, Intent, Move, Plan, Stop, best_attempt


class Refine:
    """The paper's loop: repair until correct, then optimise."""

    name = "refine"
    starts_from_best = True

    def propose(self, history: tuple[Attempt, ...], chain: int, plan: Plan) -> Move | Stop:
        past = tuple(attempt for attempt in history if attempt.move.chain == chain)
        stop = _target_stop(history, plan) or _chain_stop(past, plan)
        if stop:
            return stop
        step = len(past) + 1
        if not past:
            return Move(chain, step, Intent.FRESH)
        best = best_attempt(past)
        last = past[-1]
        if last.correct:
            assert best is not None
            if best.verdict.emulated:
                return Stop("emulated", "correct in emulation, where nothing is timed: optimise it on the hardware")
            return Move(chain, step, Intent.OPTIMISE, best.move.step)
        if _failures_in_a_row(past) <= plan.repairs:
            return Move(chain, step, Intent.REPAIR, last.move.step)
        if best is not None:
            return Move(chain, step, Intent.OPTIMISE, best.move.step)
        return Move(chain, step, Intent.FRESH)


def _target_stop(history: tuple[Attempt, ...], plan: Plan) -> Stop | None:
    best = best_attempt(history)
    if plan.target_speedup is None or best is None or not best.verdict.counts:
        return None
    if best.sure_speedup < plan.target_speedup:
        return None
    return Stop("target", f"at least {best.sure_speedup:.2f}x: the target of {plan.target_speedup:g}x is reached")


def _chain_stop(past: tuple[Attempt, ...], plan: Plan) -> Stop | None:
    if len(past) >= plan.iterations:
        return Stop("iterations", f"{len(past)} of {plan.iterations} programs were tried")
    stale = 0
    best: float | None = None
    for attempt in past:
        if not attempt.correct or attempt.verdict.contended:
            # Of what was timed beside others' work nobody knows whether it is a gain.
            continue
        gained = best is None or attempt.sure_speedup > best * (1.0 + plan.minimum_gain)
        stale = 0 if gained else stale + 1
        best = max(best or 0.0, attempt.sure_speedup)
    if stale >= plan.plateau:
        return Stop("plateau", f"{stale} correct programs in a row were no gain")
    return None


def _failures_in_a_row(past: tuple[Attempt, ...]) -> int:
    """Failed programs at the end of the chain, back to the last one that was not a repair."""
    count = 0
    for attempt in reversed(past):
        if attempt.correct:
            break
        count += 1
        if attempt.move.intent is not Intent.REPAIR:
            break
    return count


PLUGIN = Refine()
