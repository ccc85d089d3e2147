"""Predict the memory and the time of a reading before anything is loaded.

Lives here: the planner, rates of machines, and the counts of operations and bytes behind the times.
Not here: the bytes that a method keeps, which the method itself states (`Method.plan`).
"""
