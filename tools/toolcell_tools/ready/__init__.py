"""Ready tools beside the base tools: they speak to the loop, to its people, and load what the model asks for.

Each is one file, and uses only handles. A program passes those that its loop understands:
`Supervisor([*base_tools(), exit_loop])`.
"""
