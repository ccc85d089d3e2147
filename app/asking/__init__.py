"""Questions become answers: options, pages that a question names, the turn itself, its sources and quotations.

Nothing here reads documents into contexts; that is in `app/reading`.
"""
