"""Models: from a folder or a hub id to a network on its device, its chat template and its sizes.

Lives here: what is proven, loaded, quantised and refused. Not here: attention (`engine/seam.py` takes it over).
"""
