"""What Stockpot promises of a 24 GB GPU, checked on one, in one command of at most nine minutes: `make gpu-check`.

    python -m benchmarks.gpu_check                       # the whole, on CUDA
    python -m benchmarks.gpu_check --tiny --device cpu   # the very same code with tiny shapes, in 1.5 minutes

Random weights of real shapes in NF4, the process held to 24 GiB of the device and what it keeps of a text to 48 GiB of
the host. Six parts:

1. `parity.py`: the seam in bf16 against transformers' own attention, both against float32, and every kernel;
2. `methods.py`: reading with each method, and what it holds of 64K, 256K and 1M tokens, beside what was planned;
3. there too, at each of these lengths: seconds to the first token of a question, tokens/s of an answer;
4. `caches.py`: the same for transformers' dense and offloaded caches, and for kvpress where it is installed;
5. `attention.py`: a layer's attention at 32K to 1M tokens, beside dense attention and hip-attn where it is installed;
   and the search of everything there;
6. `experts.py`: a layer of a mixture's experts in codes, beside transformers' own.

`growing.py` brings a memory to a length: by reading for a while, and then by filling it in with noise, for which the
model's layers are left out. `schedule.py` says who comes when and with how much time, `check.py` keeps the time and the
table, `gauge.py` measures, `report.py` prints and writes, and `__main__.py` is the command line.

The table is laid out before anything is measured, and every row says `not reached` until it is filled in. Each method
has a share of the time and stops when it is spent; `--models Llama-3.1-8B --methods infinitehip` gives one all of it.
Text is noise and so are the weights: speed and bytes are those of the shapes, answers mean nothing. What a model that
was trained would cost more or less for its attention's sparsity is not seen here.
"""
