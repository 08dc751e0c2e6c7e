"""Profilers: one file each, found by name through the registry. A file's PLUGIN says whether its tool is here."""
