"""What the platforms on NVIDIA GPUs share.

driver.py      facts of a GPU, asked of the driver; needs no torch
monitor.py     clocks, temperature, who else is there; through NVML
gate.py        a kernel that fills the device while a call is launched
stopwatch.py   how a call is timed
gpu.py         the platform both derive from
"""
