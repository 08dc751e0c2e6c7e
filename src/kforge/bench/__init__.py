"""Experiments: many problems under several configurations, from a file or the command line.

experiment_file.py -> asked.py -> asking.py, configuring.py (presets.py, words.py, profiling.py) -> an Experiment
"""
