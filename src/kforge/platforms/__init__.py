"""Platforms: one folder each, found by name through the registry.

platforms/<name>/platform.py    PLUGIN, an instance of `base.Platform`
platforms/<name>/example/       reference.py and candidate.py: the single-shot pair
platforms/<name>/guide.md       what a model should know of the machine
"""
