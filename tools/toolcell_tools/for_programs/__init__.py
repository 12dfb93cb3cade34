"""Tools that programs call and models do not see: commands and files, bash shells, and Python that keeps its variables.
The sandbox backends of agent frameworks are made of them. They import no framework.
"""
