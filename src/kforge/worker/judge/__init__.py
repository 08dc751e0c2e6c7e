"""The trusted side: owns the problem, draws seeds, makes inputs, compares, times and decides.

It never loads candidate code. One `Judge` serves many jobs and keeps what it learned of each problem.
"""
