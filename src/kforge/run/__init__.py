"""Forging: the loop, who works in it, what it is asked and what it comes to.

api.py -> team.py, journal.py -> loop.py -> result.py
"""
