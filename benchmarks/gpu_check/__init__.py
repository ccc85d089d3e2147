"""Check of Stockpot's claims for a 24 GB GPU, in one command of at most nine minutes: `make gpu-check`.

    python -m benchmarks.gpu_check                       # the whole, on CUDA
    python -m benchmarks.gpu_check --tiny --device cpu   # the same code with tiny shapes, in 1.5 minutes

Random weights of real shapes in NF4. The process may use 24 GiB of the device, and 48 GiB of the host for texts. Six
parts:

1. `parity.py`: the engine's attention interface in bf16 against transformers' own, both against float32, and every
   kernel;
2. `methods.py`: reading with each method, and its memory at 64K, 256K and 1M tokens, beside the plan;
3. also there, at each length: seconds to the first token of an answer, and tokens/s after it;
4. `caches.py`: the same for transformers' dense and offloaded caches, and for kvpress if it is installed;
5. `attention.py`: one layer's attention at 32K to 1M tokens, beside dense attention and hip-attn if it is installed;
   and the search of `exact`;
6. `experts.py`: one layer of quantised mixture-of-experts, beside transformers' own.

`growing.py` brings a memory to a length: by reading for a while, then by filling it with noise without the model's
layers. `schedule.py` divides the time, `check.py` keeps time and table, `gauge.py` measures, `report.py` prints and
writes, and `__main__.py` is the command line.

The table is laid out before the first measurement, and every row says `not reached` until it is filled in. Each method
has a share of the time and stops when it is spent; `--models Llama-3.1-8B --methods infinitehip` gives one method all
of it. Text and weights are noise: speed and bytes are those of the shapes, answers are meaningless. Effects of a
trained model's sparse attention are not measured.
"""
