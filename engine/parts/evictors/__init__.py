"""Evictors: which entries leave a store that is full.

Not here: how entries are stored; that is the store's.
"""
