"""The web page and its server: a face over the same functions as the command line.

`page.py` puts the areas together (each area is a file that builds its components), and `events.py` connects them to
`actions/`. `tab_state.py` says what each component shows, and `views/` turns rows into HTML, in which every text from a
document, a model or a person is escaped. The page only shows the store and asks the worker for work, so it may be
closed, reloaded and opened twice at any moment.
"""
