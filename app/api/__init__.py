"""The HTTP API (`routes.py`), and the two APIs of OpenAI's clients (`openai_chat.py`, `openai_responses.py`).

The same functions as the page and the command line; `app/web/server.py` serves all of it.
"""
