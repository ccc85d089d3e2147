"""Check of Stockpot's claims for a 24 GB GPU, in parts of at most four minutes each: `make gpu-check`.

    python -m benchmarks.gpu_check                          # all parts, on CUDA
    python -m benchmarks.gpu_check --part kernels           # one part; each writes a file of its own
    python -m benchmarks.gpu_check --profile --part profile
    python -m benchmarks.gpu_check --tiny --device cpu      # the same code with tiny shapes

Random weights of real shapes in NF4. The process may use 24 GiB of the device, and 48 GiB of the host for texts. The
parts (`schedule.py`):

- parity (`parity.py`): the engine's attention interface in bf16 against transformers' own, both against float32;
- kernels (`parity.py`): every kernel against its reference, with its time inside a CUDA graph and without one;
- layers (`attention.py`, `experts.py`): one layer's attention at 32K to 1M tokens, beside dense attention and hip-attn
  if it is installed; and one layer of quantised mixture-of-experts, beside transformers' own;
- caches (`caches.py`): transformers' dense and offloaded caches, and kvpress if it is installed;
- condensing, retrieving (`methods.py`): reading with each method, its memory at 64K, 256K and 1M tokens beside the
  plan, seconds to the first token of an answer, and how each token after it was computed;
- a part for each other model, named after it: the same with a few methods;
- profile (`profile.py`): kernels, gaps and copied bytes of single passes.

`growing.py` brings a memory to a length: by reading for a while, then by filling it with noise without the model's
layers. `check.py` keeps time and tables, `gauge.py` measures, `report.py` prints and writes, and `__main__.py` is the
command line.

The tables are laid out before the first measurement, and every row says `not reached` until it is filled in. Each
method has a share of the time and stops when it is spent. Text and weights are noise: speed and bytes are those of the
shapes, answers are meaningless. Effects of a trained model's sparse attention are not measured.
"""
