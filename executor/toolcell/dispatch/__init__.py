"""The steps of a call through the supervisor. `pipeline` takes them in order; each gets frozen values.

| step | module |
|---|---|
| resolve | `resolve` |
| validate | `validate` |
| before hooks | `hooks` |
| permit | `permit` |
| approve | `ask_approval`, `ask_confirmation` |
| grants and route | `permit`, `route` |
| admit | `admit`, `turnstile` |
| run | `run_in_cell` (`serving` and `callbacks` while it runs), or `run_on_host` in this process |
| conclude | `conclude`, `overflow` |
| record | `call_record` |

`services` and `call_context` are the values that the steps get. `call_errors` has the errors of all steps.
`startup_checks` run before any call.

A handle request of a call, from the tool to its answer:

- `runner/handles.py`: a method of a handle that `brokered` made, for example `ctx.memory.search`
- `runner/link.py`: `Link.request` sends `Request`, and waits
- `pool/cell/calls.py`: `Calls._on_frame`
- `dispatch/serving.py`: `SessionRun.on_request` starts a task, `SessionRun._serve`
- `sessions/broker.py`: `serve` looks it up in the call's table, and calls the backend
- `dispatch/serving.py`: `reply`
- `pool/cell/calls.py`: `Calls.reply` sends `Reply`
- `runner/link.py`: `Link.take`

Files need no request: `ctx.workspace` and `ctx.writer` work in the cell, under the kernel's rules. A confirmation
(`ctx.confirm`) is no request either: it ends the call, by an `Error` with the reason "confirm".
"""
