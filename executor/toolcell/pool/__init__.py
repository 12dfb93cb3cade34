"""Processes: the zygotes, the cells that they fork, which call runs in which cell, and its deadline.

| module | what it does |
|---|---|
| `plan` | decides which call runs where; it does nothing |
| `pool` | queues calls and does what `plan` decided |
| `run` | a call in the pool, what it prints and how it ends |
| `interface` | the pool as its supervisor uses it |
| `maker` | makes cells, with a slot each: a uid and a cgroup |
| `fleet` | keeps the zygotes (`zygote`), and starts new ones for those that die |
| `ahead` | prewarmed cells, and when they are made |
| `cell` | one cell; its life is a table |
| `processes` | what the processes of a call use, where no cgroup counts it |
| `deadlines` | the one way to arm a timer |
| `reactor` | what differs between asyncio and trio |

A new cell, from the queue to its first call:

- `pool/plan.py`: `plan` says `Spawn`
- `pool/pool.py`: `Pool._spawn`, for a session that no cell of the reserve fits
- `pool/maker.py`: `Maker.make`, with a slot and an open `Cell`
- `pool/fleet.py`: `Fleet.make`, by the least busy zygote
- `pool/zygote.py`: `ZygoteProcess.make` sends `MakeCell`
- `runner/zygote.py`: `Zygote.on_cell` forks, or takes the prespawned cell, and answers `CellMade`
- `runner/init.py`: `main`, when the cell is locked down; then `Init.run` forks the standby and sends `Ready`
- `pool/fleet.py`: `Fleet._on_spawned`, for `CellMade`
- `pool/cell/cell.py`: `Cell._on_control`, for `Ready`; `Cell.on_process`, then `Cell._offer`
- `pool/pool.py`: `Pool.on_idle` gives it the first call

A deadline that comes while the call runs:

- `pool/cell/calls.py`: `Calls.send` or, for a far one, `Calls.inspect` arms it
- `pool/pool.py`: `Pool._ring`, when the reactor's alarm rings
- `pool/cell/calls.py`: `Calls._on_deadline`, then by the cell's table `Calls.judge_lateness` and `Calls.conclude`
- `pool/run.py`: `Run.end`
- `dispatch/call_errors.py`: `error_of` makes it a `Timeout` or a `LimitExceeded`

A crash of the call process:

- `runner/init.py`: `Init.on_death` reaps it and sends `Exited`
- `pool/cell/cell.py`: `Cell._on_exited`
- `pool/cell/calls.py`: `Calls.judge_exit`, then by the cell's table `Calls.conclude`
- `pool/run.py`: `Run.end`
- `dispatch/call_errors.py`: `error_of` makes it a `Crashed` or a `LimitExceeded`
"""
