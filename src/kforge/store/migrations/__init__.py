"""The steps that brought a store's tables to their present form; run by `kforge.store.migration`."""
