"""The archive: entries that are kept whole outside the device's store, and how they are found and fetched.

Not here: the choice of entries that a query sees, which is a selector's.
"""
