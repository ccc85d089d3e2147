"""Training: scripts that make the models shipped with this repository.

Lives here: data, curriculum, optimiser and evaluation of the pocket model (`pocket/`), training of Locret's retaining
heads (`locret/`) and of Activation Beacon's weights (`beacon/`) for any model, and code that they share. It may import
`engine` and `kernels`, but never `app`, `ingest` or `sessions`. The app and the server do not import it.
"""
