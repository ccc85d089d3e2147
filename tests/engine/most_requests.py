"""The most requests that one layer may make to a device in a pass. `test_counts` holds it to them."""

# Operations that launch a kernel, and launches of Triton, of one layer: of a pass of reading, an eager token of an
# answer whose attention is counted, and a recorded one. The four products of the linear layers are among them. A
# figure that falls is lowered here.
MOST = {
    "truncate": {"reading": (8, 6), "token": (9, 7), "recorded": (7, 7)},
    "locret": {"reading": (14, 6), "token": (15, 6), "recorded": (13, 7)},
    "streaming": {"reading": (9, 9), "token": (8, 10), "recorded": (8, 11)},
    "infinitehip": {"reading": (130, 20), "token": (13, 11), "recorded": (13, 11)},
    "recall": {"reading": (14, 6), "token": (22, 11), "recorded": (20, 11)},
    "exact-sketched": {"reading": (16, 11), "token": (46, 17), "recorded": (40, 16)},
    "exact": {"reading": (9, 9), "token": (37, 17), "recorded": (30, 16)},
    "infllm": {"reading": (52, 12), "token": (35, 11), "recorded": (39, 12)},
}
