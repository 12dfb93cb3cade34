"""Processes: the zygotes, the cells that they fork, which call runs in which cell, and its deadline.

| module | what it does |
|---|---|
| `plan` | decides which call runs where; it does nothing |
| `pool` | queues calls and does what `plan` decided |
| `maker` | makes cells, with a slot each (`slots`: uids and cgroups) |
| `fleet` | keeps the zygotes, and starts new ones for those that die (`recovery`) |
| `reserve`, `prewarm` | prewarmed cells, and when they are made |
| `ahead` | when the process for a cell's next call is forked |
| `deadlines` | the one way to arm a timer |
| `cell` | one cell; its life is a table |
| `budget` | bytes that wait on behalf of calls |
| `reactor` | what differs between asyncio and trio |
"""
