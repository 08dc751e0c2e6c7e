"""The untrusted side: a warm zygote forks one runner for each candidate.

    zygote.py    has torch imported, never runs candidate code, forks
    keeper.py    process 1 of a runner: drains what it prints, ends everything it started
    serve.py     the runner itself: loads the candidate and answers the judge's requests
    watch.py, tamper.py, modes.py    what the runner notices about its candidate

Nothing here knows the reference, the seeds of other calls, or another candidate.
"""
