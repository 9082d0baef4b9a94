"""A Triton kernel, which only a GPU can run: `dfshim run --host` refuses it by name, with DFSHIM_HOST_STUB=1 it is skipped.

Exit status: 0 skipped, 1 refused, 77 there is no Triton here.
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
