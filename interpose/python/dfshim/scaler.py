"""PyTorch's GradScaler for optimizers of dfshim.deft, in place of torch.amp.GradScaler; the
training loop stays as it is.

torch.amp.GradScaler unscales and looks for inf and NaN in the gradients of the iteration in which
step() is called, which are one rank's own and not those that are applied. Here both are done with
what is applied: the sum over ranks and merged iterations. So all ranks skip the same updates, and
have the same scale.
"""

import torch

from dfshim.plain import Wrapped


class GradScaler(torch.amp.GradScaler):
    def unscale_(self, optimizer):
        if isinstance(optimizer, Wrapped) and self.is_enabled():
            raise RuntimeError("dfshim.deft: unscale_() is not supported: gradients are not "
                               "applied now; to clip them, wrap(clip=)")
        super().unscale_(optimizer)

    def step(self, optimizer, *args, **kwargs):
        if not isinstance(optimizer, Wrapped) or not self.is_enabled():
            return super().step(optimizer, *args, **kwargs)
        return optimizer.scaled_step(self, *args, **kwargs)
