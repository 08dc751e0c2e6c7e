"""Reports: a study becomes one page, Markdown or a table.

Study -> findings.py (summaries, comparisons) -> page.py | markdown.py | table.py
"""
