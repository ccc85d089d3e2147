"""Training: scripts that make the models this repository ships.

What lives here: the pocket model's data, ladder, optimiser and measurements (`pocket/`), and what trains Locret's
retaining heads (`locret/`) and Activation Beacon's weights (`beacon/`) for any model; beside this file, what several of
them share. It may import `engine` and `kernels`; it must never import `app`, `ingest` or `sessions`, and nothing that
serves people imports it.
"""
