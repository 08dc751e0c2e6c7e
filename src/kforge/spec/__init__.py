"""From what a user wrote, in a file or on the command line, to an Experiment.

experiment_file.py -> experiment_options.py -> experiment_spec.py, configurations.py (presets.py,
option_schema.py, profiling_modes.py, mistakes.py)
"""
