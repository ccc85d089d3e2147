"""Documents become contexts: files are added, encoded, read once by a model, saved, and opened again later.

Jobs and threads are in `app/jobs`; questions are in `app/asking`.
"""
