"""Searches: what to try next, given what has been tried. One file each, found by name through the registry."""
