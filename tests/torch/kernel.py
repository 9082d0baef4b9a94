"""Launches a Triton kernel, which only a GPU can run. `dfshim run --host` refuses the kernel by name.
With DFSHIM_HOST_STUB=1 it skips the kernel.

Exit status: 0 skipped, 1 refused, 77 no Triton is installed.
"""

import sys

import torch

try:
    import triton
    import triton.language as tl
except ImportError:
    sys.exit(77)


@triton.jit
def double(x, n: tl.constexpr):
    at = tl.arange(0, n)
    tl.store(x + at, tl.load(x + at) * 2)


x = torch.ones(8, device="cuda")
double[(1,)](x, 8)
print("skipped; the sum is", x.sum().item())
