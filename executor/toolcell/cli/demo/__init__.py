"""`toolcell demo`: a scenario as data, its tools, a stage to play it on, and views of what happens.

tools      what runs inside the cells
stage      the project, the web, the channel and the memory that the sessions work with
expect     what the right outcome of a step is
scenario   the steps
play       runs them and judges
view       shows them, live or line by line
leftovers  whether anything is left behind
"""
