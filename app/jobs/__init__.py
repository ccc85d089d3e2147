"""Work in the background: uploads become documents, and threads read and answer while the page and the API go on.

Jobs are rows of the store, so a program that was stopped finds them again when it starts.
"""
