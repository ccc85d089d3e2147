"""The host tier: everything that was read, in host memory or on disk, and how the best of it is found again.

Lives here: slabs and their transfers, search, pruning and the device's cache, memories and settings with such a tier.
Not here: methods, which say when they look and for what.
"""
