"""Key-value memories on the device, and attention over them.

Lives here: what every memory offers, entries in slots and in a window, how they are coded and shared, what a CUDA graph
can record of them. Not here: methods, which say what is kept; the host tier.
"""
