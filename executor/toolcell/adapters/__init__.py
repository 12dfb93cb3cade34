"""Adapters for agent frameworks: a session's tools as a framework's tools, and a framework's tools as tools of cells.

One module a framework, named as the extra that installs it: `toolcell.adapters.pydantic_ai`, `.openai_agents`,
`.langchain`, `.deepagents`, `.adk`, `.llama_index`, `.smolagents`, `.fastmcp`, and for training `.verl`, `.skyrl`
and `.swe_rex`. Importing this package loads none.

The modules without a framework in their names are the base of all adapters:

- `session_calls`: `SessionCalls`, a session as an adapter uses it: declarations, approval asked ahead, calls.
- `session_loop`: `SessionLoop`, the way of a call to the session's event loop, from any loop or thread.
- `results`: the parts of a result in the forms that frameworks take.
- `foreign`: a framework's tool as a tool that runs in a cell.
- `session_source`: sessions for frameworks that make their tools themselves.

The tools of which sandbox backends are made are in `toolcell_tools.for_programs`.

The contract of an adapter:

1. It makes no decision about permission. A call that needs approval is put to the framework's person with the
   supervisor's own request (`SessionCalls.question`), and the answer goes to the supervisor's own approval step
   (`SessionCalls.call(answer=…)`), which checks that it fits the call.
2. It passes the framework's call id, and reports progress where the framework has a place for it.
3. Errors reach the model as the framework's tool errors, in the words of `ToolResult.for_model`. Only misuse, such as a
   closed session, raises in the program.
4. If the framework cancels the call, the call in the cell ends.
"""
