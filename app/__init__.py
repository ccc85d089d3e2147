"""The faces of Stockpot: web page, HTTP API and command line over one set of functions.

This is the only folder that knows documents (`ingest`), models (`engine`) and the store (`sessions`) together; nothing
imports it. All of it works on a `Service` (`service.py`), which is one home in use by one process.

reading/      files become documents, and documents become contexts: encoded, read once, saved, opened again
asking/       questions become answers with sources
machine/      models on this machine and on the hub, methods' needs, plans, and the doctor
jobs/         uploads, and the threads that open files, read and answer for the page and the API
web/          the page and its server
api/          the HTTP API, and the two APIs of OpenAI's clients
commands/     the command line, one file per group of commands; `cli.py` is its entry point
listing.py    list, find, show, rename and delete documents, contexts and sessions
home.py, errors.py, formatting.py, quantities.py, lru_cache.py   paths, error sentences, numbers as text, a small cache

No tensor arithmetic, no SQL and no file formats here.
"""
