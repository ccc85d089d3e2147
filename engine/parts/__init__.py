"""The parts of a memory: stores, the archive, selectors and evictors, and how they attend.

Not here: which parts a method puts together; that is the method's.
"""
