"""From what a user wrote, in a file or on the command line, to an Experiment.

experiment_file.py -> asked.py -> asking.py, configuring.py (presets.py, words.py, profiling.py, mistakes.py)
"""
