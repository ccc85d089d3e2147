"""The web page and the HTTP API: two faces over the same functions as the command line.

`page.py` puts the areas together (each area is a file that builds its components), `wiring.py` connects them;
`views/` turns rows into HTML in which every text from a document, a model or a person is escaped. The page only shows
what is in the store and asks the worker for work, so it may be closed, reloaded and opened twice at any moment.
`api.py` is the HTTP API; `openai_api.py` and `openai_responses.py` are those that other programs know already.
"""
