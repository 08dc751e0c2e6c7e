"""Models that are no provider's: one file each, found through the registry. Its name stands before a colon."""
