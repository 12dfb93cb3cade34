"""The test kit: tools that misbehave, tools that probe the sandbox, backends that remember, and a check for leftovers.

Import what you need from its modules; a cell can import them too, so their tools need no shipping.

    from toolcell.testing import misbehaving, probes
    from toolcell.testing.backends import ListChannel
    from toolcell.testing.residue import Residue
"""
