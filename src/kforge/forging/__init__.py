"""Forging: the loop, who works in it, what it is asked and what it comes to.

requesting.py -> api.py -> crews.py, journal.py -> loop.py -> result.py -> drop_in.py
"""
