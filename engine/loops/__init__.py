"""The loops: reading a text, conversations over it, second looks and rereading.

Not here: how entries are kept; a loop provides what a method declares, and asks none which it is.
"""
