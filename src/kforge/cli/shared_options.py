"""Options that several commands have."""

from __future__ import annotations

import typer

STORE = typer.Option(help="Where runs are kept: a folder or a database URL. Default: .kforge here.")
CACHE = typer.Option(help="Folder of replies to share between runs: an equal question is not asked twice.")
CONCURRENCY = typer.Option(min=1, help="Requests to a model at once.")
DTYPE = typer.Option(
    help="The problem in another dtype: float16, bfloat16, float32 or float64, for inputs, parameters and buffers."
)
BACKWARD = typer.Option(
    "--backward", help="Gradients too: they are verified, and a timed call is forward and backward."
)
PER_MINUTE = typer.Option(min=1, help="Requests to a model per minute.")
