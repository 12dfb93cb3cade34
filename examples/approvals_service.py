"""A web service whose agent pays only what a clerk approves by HTTP.

`CLERK_TOKEN=… uvicorn approvals_service:app` serves it. `python approvals_service.py` plays a customer and a clerk.
"""

import hmac
import os
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import anyio
import httpx
from fastapi import Depends, FastAPI, HTTPException
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from toolcell import ApprovalQueue, Session, SessionKind, Supervisor, UsageError, tool


@tool(requires_approval=lambda arguments: arguments["amount"] > 10)
def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


supervisor = Supervisor([pay], approver=ApprovalQueue())  # or `state=…`: then answers outlive the service
sessions: dict[str, Session] = {}


@asynccontextmanager
async def lifespan(_app: FastAPI) -> AsyncGenerator[None]:
    with tempfile.TemporaryDirectory() as workspace:
        async with supervisor:
            sessions["shop"] = await supervisor.open_session(SessionKind.MAIN, workspace=workspace)
            yield


app = FastAPI(lifespan=lifespan)


def clerk(given: Annotated[HTTPAuthorizationCredentials, Depends(HTTPBearer())]) -> str:
    """Let nobody answer but a clerk. The agent and its tools never hold this token."""
    if not hmac.compare_digest(given.credentials, os.environ["CLERK_TOKEN"]):
        raise HTTPException(403, "You are no clerk.")
    return "clerk"


Clerk = Annotated[str, Depends(clerk)]


@app.post("/payments")
async def payments(amount: int) -> dict[str, Any]:
    """Call the tool. The answer comes when the clerk's is there; no process is held meanwhile."""
    result = await sessions["shop"].call(pay, {"amount": amount})
    return {"ok": not result.is_error, "said": result.for_model()}


@app.get("/approvals")
async def approvals(_by: Clerk) -> list[dict[str, str]]:
    """List what waits for an answer."""
    pending = [(entry.id, entry.request) for entry in supervisor.approvals.pending()]
    return [{"id": id, "asks": request.text, "because": request.reason} for id, request in pending if request]


@app.post("/approvals/{id}/{answer}")
async def answer(id: str, answer: str, by: Clerk) -> None:
    """Approve or deny one request, once."""
    try:
        if answer == "approve":
            supervisor.approvals.approve(id, by=by)
        else:
            supervisor.approvals.deny(id, "The clerk said no.", by=by)
    except UsageError as error:  # no such request, or it has its answer
        raise HTTPException(409, str(error)) from None


async def play() -> None:
    os.environ["CLERK_TOKEN"] = "letmein"
    known = {"Authorization": "Bearer letmein"}
    transport = httpx.ASGITransport(app)
    async with lifespan(app), httpx.AsyncClient(transport=transport, base_url="http://shop.example.com") as client:

        async def buy(amount: int) -> None:
            print((await client.post("/payments", params={"amount": amount})).json())

        await buy(5)
        print("a stranger asks:", (await client.get("/approvals")).status_code)
        for amount, verdict in ((50, "approve"), (5000, "deny")):
            async with anyio.create_task_group() as customers:
                customers.start_soon(buy, amount)
                while not (waiting := (await client.get("/approvals", headers=known)).json()):
                    await anyio.sleep(0.05)
                print(verdict, waiting[0]["asks"])
                url = f"/approvals/{waiting[0]['id']}/{verdict}"
                print((await client.post(url, headers=known)).status_code)
                print("again:", (await client.post(url, headers=known)).status_code)


if __name__ == "__main__":
    anyio.run(play)
