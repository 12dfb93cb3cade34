"""Processes: the zygotes, the cells that they fork, which call runs in which cell, and its deadline.

| module | what it does |
|---|---|
| `plan` | decides which call runs where; it does nothing |
| `pool` | queues calls and does what `plan` decided |
| `run`, `calling` | a call in the pool and its outcome; the pool as its supervisor uses it |
| `maker` | makes cells, with a slot each (`slots`: uids and cgroups) |
| `fleet` | keeps the zygotes (`zygote`), and starts new ones for those that die (`recovery`) |
| `reserve`, `prewarm` | prewarmed cells, and when they are made |
| `ahead` | when the process for a cell's next call is forked |
| `deadlines` | the one way to arm a timer |
| `rivals`, `pace` | which sessions make calls; how fast the queue moves |
| `cell` | one cell; its life is a table |
| `outbox`, `capture` | bytes that wait on their way to a cell, and of what it prints |
| `reactor` | what differs between asyncio and trio |

A new cell, from the queue to its first call:

- `pool/plan.py`: `plan` says `Spawn`
- `pool/pool.py`: `Pool._spawn`, for a session that no cell of the reserve fits
- `pool/maker.py`: `Maker.new_cell`, with a slot and an open `Cell`; then `Maker.ask_for`
- `pool/fleet.py`: `Fleet.make`, by the least busy zygote
- `pool/zygote.py`: `ZygoteProcess.make` sends `MakeCell`
- `runner/zygote.py`: `Zygote.on_cell` forks, or takes the prespawned cell, and answers `CellMade`
- `runner/cell.py`: `main`, when the cell is locked down; then `Init.run` forks the standby and sends `Ready`
- `pool/pool.py`: `Pool.on_spawned`, for `CellMade`
- `pool/cell/control.py`: `CellControl.on_readable`, for `Ready`
- `pool/cell/cell.py`: `Cell.on_process`, then `Cell._offer`
- `pool/pool.py`: `Pool.on_idle` gives it the first call

A deadline that comes while the call runs:

- `pool/cell/calls.py`: `Calls.send` or, for a far one, `Calls.inspect` arms it
- `pool/pool.py`: `Pool._ring`, when the reactor's alarm rings
- `pool/cell/calls.py`: `Calls._on_deadline`, then by the cell's table `Calls.judge_lateness` and `Calls.conclude`
- `pool/run.py`: `Run.end`
- `dispatch/call_errors.py`: `error_of` makes it a `Timeout` or a `LimitExceeded`

A crash of the call process:

- `runner/cell.py`: `Init.on_death` reaps it and sends `Exited`
- `pool/cell/cell.py`: `Cell._on_exited`
- `pool/cell/calls.py`: `Calls.judge_exit`, then by the cell's table `Calls.conclude`
- `pool/run.py`: `Run.end`
- `dispatch/call_errors.py`: `error_of` makes it a `Crashed` or a `LimitExceeded`
"""
