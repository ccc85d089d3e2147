"""Selectors: which entries of an archive the queries of a pass attend to.

Not here: where the entries lie; that is the archive's.
"""
