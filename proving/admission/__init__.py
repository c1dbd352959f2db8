"""Admission: what a batch would cost, and whether it can be proven.

Read `answers` of the chains first, then the `cost` of the facts that the registry lacks. `admission_checks` has the
reasons to reject a batch. `admit` decides about stored batches, and `estimates` are for requests that aren't stored.
"""
