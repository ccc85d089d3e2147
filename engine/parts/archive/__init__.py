"""The archive: entries that are kept whole outside the device's store, how they are found and brought back.

Not here: which of them a query sees; that is the selectors'.
"""
