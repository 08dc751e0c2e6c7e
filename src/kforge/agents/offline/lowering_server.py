"""The lowering process: orders come in on standard input as JSON lines, products go out on standard output.

    python -m kforge.agents.offline.lowering_server

It imports torch, runs the problem's code and PyTorch's compiler; what starts it does neither, and survives its death.
"""

from __future__ import annotations

import json
import os
import sys
from typing import TextIO

from kforge.agents.offline.lift import lift
from kforge.agents.offline.recipe import LoweringRequest, LoweringResult, Unliftable, first_line
from kforge.jsonable import decode, encode


def answer(order: LoweringRequest) -> LoweringResult:
    """The product of an order; whatever the module or the compiler raises is a reason."""
    source, reason = None, ""
    try:
        source = lift(order)
    except Unliftable as error:
        reason = str(error)
    except (Exception, SystemExit) as error:
        reason = f"the lifting failed: {first_line(error)}"
    return LoweringResult(source, reason)


def serve(orders: TextIO, products: TextIO) -> None:
    """Answer until the orders end."""
    for line in orders:
        product = answer(decode(LoweringRequest, json.loads(line)))
        products.write(json.dumps(encode(product)) + "\n")
        products.flush()


def main() -> None:
    # A problem's code may print: only answers belong on the pipe.
    products = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    serve(sys.stdin, products)


if __name__ == "__main__":
    main()
