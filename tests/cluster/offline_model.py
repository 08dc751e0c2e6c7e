"""A model as a program: the same reply to the same prompt, and a line for every time it is asked and has answered.

python offline_model.py CALLS < PROMPT

Its program for a problem whose source has a line `NAME = "..."` begins with the line `# NAME first`, or `# NAME later`
where the prompt shows an earlier one.
"""

from __future__ import annotations

import hashlib
import re
import sys
import time
from pathlib import Path

calls = Path(sys.argv[1])
prompt = sys.stdin.read()
named = re.search(r'NAME = "(\w+)"', prompt)
name = named[1] if named else "nameless"
line = f"{hashlib.sha256(prompt.encode()).hexdigest()} {name}"
with calls.open("a") as file:
    file.write(f"{line}\n")
when = "later" if f"# {name} " in prompt else "first"
print(f"```python\n# {name} {when}\nimport torch.nn as nn\n\n\nclass ModelNew(nn.Module):\n    pass\n```")
with calls.with_suffix(".answered").open("a") as file:
    file.write(f"{line} {time.time()}\n")
