"""Models on this machine and on the hub, plans of memory and time, and checks of the installation.

Nothing here reads or asks; only `loaded_model.py` loads weights.
"""
