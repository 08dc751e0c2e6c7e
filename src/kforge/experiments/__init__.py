"""Experiments: many problems under several configurations.

kforge.spec (from a file or options to an Experiment) -> resume_plan.py -> scheduler.py (cells.py, confirmation.py,
model_health.py, session_record.py, progress.py) -> the store -> study_reader.py (a Study, for reports and comparisons)
"""
