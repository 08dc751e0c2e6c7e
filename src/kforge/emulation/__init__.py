"""Kernels of other hardware, run on the processor to see whether they are right. Nothing here says how fast they are.

tokens.py       source text as tokens with their lines
msl_source.py   Metal's language, written as C++
msl_functions.py  its functions; those that differ only by address space
msl_reconvergence.py  where lanes that parted meet again
msl_numbers.py  whole numbers that a program names
cuda_source.py  CUDA C, written as C++
entries.py      how a kernel is called from outside
native_build.py C++ compiled against `native/`, the runtime: threads as fibres, groups on the cores, checks
kernel_launch.py a kernel, its buffers, its grid; what went wrong, in a sentence
stored_addresses.py addresses in tables of pointers and in structs
metal.py        torch.mps as programs for a Mac use it
cuda.py         cuda.core as programs for NVIDIA's GPUs use it
fake_device.py  tensors that say they are on another device
"""
