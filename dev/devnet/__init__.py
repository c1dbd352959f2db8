"""Development chains, databases, brokers, and child processes that end with their parent.

They are for the demos, tests and campaigns.
"""
