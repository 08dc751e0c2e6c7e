"""Executors: one file each, found through the registry. Its name stands before the colon, if there is one."""
