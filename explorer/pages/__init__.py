"""The pages for people, and the same content as JSON for programs.

They write nothing but the throttle's counts.
"""
