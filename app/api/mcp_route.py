"""The route /mcp of the server: the tools for agents, over HTTP. The worker answers their questions."""

from contextlib import AbstractAsyncContextManager, aclosing

from anyio.to_thread import run_sync
from fastapi import FastAPI
from mcp.server.transport_security import TransportSecuritySettings

from app.api.agent_tools import agent_server
from app.api.openai_turns import Answering
from app.asking.answer_options import AnswerOptions
from app.asking.answers import Checked
from app.asking.turns import new_session
from app.errors import AppError
from app.jobs.worker import Worker
from app.service import Service


def add_mcp(app: FastAPI, service: Service, worker: Worker) -> AbstractAsyncContextManager[None]:
    """Add the route to an application, and return a context manager; it works while that is entered."""
    answering = Answering(service, worker)

    async def ask(context: str, question: str, pages: str) -> Checked:
        def begun() -> str:
            return new_session(service, context).id

        now = await run_sync(lambda: worker.ask(begun, question, AnswerOptions(), pages))
        async with aclosing(answering.followed(now, store=False)) as turns:
            async for grown in turns:
                now = grown
        if now.status != "done":
            raise AppError(now.error or "The answer was stopped.")
        return Checked(now.answer, now.reasoning, now.sources, now.measurements)

    server = agent_server(service, ask)
    guarded = TransportSecuritySettings(enable_dns_rebinding_protection=False)  # `web/guard.py` checks each request
    app.router.routes += server.streamable_http_app(stateless_http=True, transport_security=guarded).routes
    return server.session_manager.run()
