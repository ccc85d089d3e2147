"""Predict the memory and the time of a reading before anything is loaded.

Lives here: the planner, rates of machines, and estimates of times by operations and bytes.
Not here: the bytes that a method keeps, which the method itself states (`Method.plan`).
"""
