"""The judging side of KForge: needs only the standard library and torch.

    judge/      trusted: owns the problem, draws seeds, compares, times, decides
    runner/     untrusted once a candidate is in it: builds, calls, returns raw outputs
    sandbox/    how a runner is held
    wire.py, arena.py, trees.py     what crosses between the two

`python -m kforge.worker --jobs jobs.jsonl --out DIR` judges a batch on a host that has only Python and torch.
"""
