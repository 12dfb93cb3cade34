"""The steps of a call through the supervisor. `pipeline` takes them in order; each gets frozen values.

| step | module |
|---|---|
| resolve | `resolve` |
| validate | `validate` |
| before hooks | `hooks` |
| permit | `permit` |
| approve | `approve`, `confirming` |
| grants and route | `grant`, `route` |
| admit | `admit` |
| run | `execute` in a cell (`serving` while it runs), `host` in this process |
| conclude | `conclude`, from the outcome by `result` |
| record | `record` |

`services` and `context` are the values that the steps get. The other modules are parts of a step.

A handle request of a call, from the tool to its answer:

- `runner/handles.py`: a method of a handle that `brokered` made, for example `ctx.memory.search`
- `runner/link.py`: `Link.request` sends `Request`, and waits
- `pool/cell/calls.py`: `Calls._on_frame`
- `dispatch/serving.py`: `SessionRun.on_request` starts a task, `SessionRun._serve`
- `sessions/broker.py`: `serve` looks it up in the call's table, and calls the backend
- `dispatch/answering.py`: `reply`
- `pool/cell/calls.py`: `Calls.reply` sends `Reply`
- `runner/link.py`: `Link.take`

Files need no request: `ctx.workspace` and `ctx.writer` work in the cell, under the kernel's rules. A confirmation
(`ctx.confirm`) is no request either: it ends the call, by an `Error` with the reason "confirm".
"""
