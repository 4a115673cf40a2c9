"""Evaluation of what the lab has stored: runs of campaigns, and figures of the papers that tacit builds on.

`tacit lab papers` runs `python -m tacit.lab papers` with its input as JSON on standard input. Python measures nothing.
"""
