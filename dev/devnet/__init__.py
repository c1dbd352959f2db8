"""Development chains, databases, brokers, and child processes that end with their parent.

Demos, tests and campaigns use them.
"""
