"""What is so for every test, wherever it runs."""

import os

import torch

torch.set_num_threads(1)  # more divide a product otherwise, and its last bit decides between entries that are alike
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # Triton's interpreter must be asked for before triton is imported
os.environ["COLUMNS"] = "80"  # help is laid out for the terminal at hand
os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1"  # the servers that tests talk with are on this machine
os.environ.pop("STOCKPOT_AUTH", None)
