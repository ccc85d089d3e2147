"""What a reading will need and how long it will take, before anything is loaded.

Lives here: the planner, machines' rates, and the counts of operations and bytes that times are made of.
Not here: what a method keeps, which the method itself says (`Method.plan`).
"""
