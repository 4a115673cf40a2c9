"""More than one machine: placement on Ray (in a clone of the repository: `pip install '.[ray]'`). `tacit cluster` runs `python -m tacit.cluster`.

A front tells each client which node answers it; the protocol runs between client and node. What passes Ray is names, addresses and
counts: keys, material, inputs and answers never do. docs/scale.md says how it works and what is not built.
"""
