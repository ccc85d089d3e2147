"""The faces of Stockpot: web page, HTTP API and command line over one set of functions.

This is the only room that knows documents (`ingest`), models (`engine`) and what is kept (`sessions`) together;
nothing imports it. `cli.py` and `commands/` are the command line, `web/` is the page and the HTTP API; what they share
lives beside this file, and all of it works on a `Service`, which is one home in use (`service.py`):

documents.py, uploads.py, library.py, pages.py   files become documents, which stay at hand, page by page
readings.py, stream.py, checkpoints.py, progress.py   documents become tokens, and are read into contexts
opening.py, opened.py, lru.py          contexts and conversations from disk, and those open in memory
turns.py, answer_options.py, named_pages.py, sources.py, quotes.py   questions become answers with sources
memory_map.py                          what of a text its context still remembers
planning.py, methods.py, models.py, local_models.py, doctor.py   what there is, and what it needs
shelf.py                               finding, listing, renaming and deleting what is kept
claims.py, intake.py, worker.py        the threads that open files, read and answer for the page and the API
home.py, errors.py, words.py           where things are, and how things are said to people

No tensor arithmetic, no SQL and no file formats here.
"""
