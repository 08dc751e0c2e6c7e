"""Kernels of other hardware, run on the processor to see whether they are right. Nothing here says how fast they are.

tokens.py       source text as tokens with their lines
msl_source.py   Metal's language, written as C++
cuda_source.py  CUDA C, written as C++
building.py     C++ compiled against `native/`, the runtime: threads as fibres, groups on the cores, checks
launching.py    a kernel, its buffers, its grid; what went wrong, in a sentence
metal.py        torch.mps as programs for a Mac use it
"""
