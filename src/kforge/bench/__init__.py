"""Experiments: many problems under several configurations.

design/ (from a file or options to an Experiment) -> beginning.py -> running.py (cells.py, confirming.py, silence.py,
recording.py, progress.py)
-> the store -> reading.py (a Study, for reports and comparisons)
"""
