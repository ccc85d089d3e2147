"""The faces of Stockpot: web page, HTTP API and command line over one set of functions.

This is the only room that knows documents (`ingest`), models (`engine`) and what is kept (`sessions`) together;
nothing imports it. What all faces share lives beside this file; `commands/` holds the command line, `web/` the
page and the HTTP API. No tensor arithmetic, no SQL and no file formats here.
"""
