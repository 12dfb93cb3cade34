"""Ratios of toolcell to the floor under it and to its peers, measured in one run. `README.md` says how to read them."""
