"""`toolcell demo`: a scenario as data, its tools, a stage to play it on, and views of what happens.

tools      the tools that run inside the cells
stage      the project, the web, the channel and the memory of the sessions
expect     the right outcome of a step
scenario   the steps
play       runs the steps and judges the outcomes
view       shows the outcomes, live or line by line
leftovers  checks that nothing is left behind
"""
