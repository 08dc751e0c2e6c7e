"""The judging side of KForge: needs only the standard library and torch.

    judge/      trusted: owns the problem, draws seeds, compares, times, decides
    runner/     untrusted once a candidate is in it: builds, calls, returns raw outputs
    sandbox/    how a runner is held
    wire.py, arena.py, device_memory.py, trees.py, held_tensors.py      what crosses between the two
    judges.py, device_selection.py, jobs.py                             a judge for each device; a batch of jobs
    bundle_folder.py, bundle_work.py, report_file.py                    jobs carried here from another machine

`python -m kforge.worker --jobs jobs.jsonl --out DIR` judges a batch on a host that has only Python and torch,
`python -m kforge.worker --bundle DIR` the jobs that `kforge forge --executor bundle:DIR` left in a folder.
"""
