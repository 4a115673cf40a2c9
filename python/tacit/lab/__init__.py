"""Evaluation of what the lab has stored: runs of campaigns, and figures of the papers that tacit builds on.

`tacit lab compare`, `tacit lab papers` and the end of `tacit lab transport` run `python -m tacit.lab COMMAND` with their input as JSON on
standard input. Python measures nothing; what it gets was read and checked by `tacit-lab`.
"""
