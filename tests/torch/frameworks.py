#!/usr/bin/env python3
"""Runs trainings of frameworks above PyTorch, where they are installed: `dfshim ci` must find no
deadlock in any of them.

  dfshim ci -- python3 -m torch.distributed.run --nproc-per-node 2 frameworks.py CASE
  frameworks.py --list PACKAGE      lists its cases, or none where it is not installed

Exit status: 0.
"""

import importlib.util
import os
import runpy
import sys
import tempfile

import torch


class Squares(torch.utils.data.Dataset):
    def __len__(self):
        return 200

    def __getitem__(self, i):
        return torch.full((16,), i / 200)


def lightning(strategy, **options):
    import lightning

    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))

        def training_step(self, batch, i):
            loss = self.net(batch).square().mean()
            self.log("loss", loss, sync_dist=True)
            return loss

        def validation_step(self, batch, i):
            self.log("validation", self.net(batch).square().mean(), sync_dist=True)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    data = torch.utils.data.DataLoader(Squares(), batch_size=4)
    lightning.Trainer(accelerator="gpu", devices=2, strategy=strategy, max_epochs=3, val_check_interval=10,
                      log_every_n_steps=3, logger=False, enable_progress_bar=False,
                      default_root_dir=tempfile.mkdtemp(), **options).fit(Model(), data, data)


def fabric():
    """Lightning's lower half, whose loop the user writes."""
    from lightning.fabric import Fabric

    fabric = Fabric(accelerator="gpu", devices=2, strategy="ddp")
    fabric.launch()
    net = torch.nn.Linear(16, 1)
    net, opt = fabric.setup(net, torch.optim.SGD(net.parameters(), lr=0.01))
    data = fabric.setup_dataloaders(torch.utils.data.DataLoader(Squares(), batch_size=4))
    for i, batch in enumerate(data):
        with fabric.no_backward_sync(net, enabled=i % 2 == 0):
            loss = net(batch).square().mean()
            fabric.backward(loss)
        if i % 2:
            opt.step()
            opt.zero_grad()
            fabric.all_reduce(loss.detach()).item()
    fabric.save(os.path.join(tempfile.gettempdir(), f"fabric-{os.getpid()}.ckpt"), {"net": net})


def trainer(adapters=None, **options):
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

    class Tokens(Squares):
        def __getitem__(self, i):
            return {"input_ids": torch.randint(0, 100, (16,)), "attention_mask": torch.ones(16, dtype=torch.long),
                    "labels": torch.tensor(i % 2)}

    model = BertForSequenceClassification(BertConfig(vocab_size=100, hidden_size=32, num_hidden_layers=2,
                                                     num_attention_heads=2, intermediate_size=64))
    if adapters:
        from peft import get_peft_model

        model = get_peft_model(model, adapters)
    args = TrainingArguments(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=4, max_steps=40,
                             eval_strategy="steps", eval_steps=10, logging_steps=3, save_strategy="no",
                             report_to=[], **options)
    Trainer(model=model, args=args, train_dataset=Tokens(), eval_dataset=Tokens()).train()


def zero(stage):
    """DeepSpeed with two batches in a step, a loss that all ranks know, and a checkpoint at the end."""
    import deepspeed

    net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    engine, _, loader, _ = deepspeed.initialize(model=net, model_parameters=net.parameters(), training_data=Squares(), config={
        "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2, "gradient_clipping": 1.0,
        "optimizer": {"type": "Adam", "params": {"lr": 0.01, "torch_adam": True}},
        "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0}})
    for epoch in range(2):
        for i, x in enumerate(loader):
            loss = engine(x.to(engine.device)).square().mean()
            engine.backward(loss)
            engine.step()
            if i % 5 == 4:
                mean = loss.detach().clone()
                torch.distributed.all_reduce(mean)
                mean.item()
    where = [tempfile.mkdtemp()]
    torch.distributed.broadcast_object_list(where, 0)
    engine.save_checkpoint(where[0])


def adapters():
    """PEFT below the Trainer of transformers."""
    from peft import LoraConfig

    trainer(adapters=LoraConfig(r=4, target_modules=["query", "value"], task_type="SEQ_CLS"))


def accelerate(script):
    """Runs one of the scripts with which accelerate tests itself."""
    import accelerate.test_utils

    where = os.path.join(os.path.dirname(accelerate.test_utils.__file__), "scripts", script + ".py")
    sys.argv = [where]
    runpy.run_path(where, run_name="__main__")


CASES = {
    "lightning": {
        "lightning_ddp": lambda: lightning("ddp"),
        "lightning_fsdp": lambda: lightning("fsdp"),
        "lightning_accumulate": lambda: lightning("ddp_find_unused_parameters_true", accumulate_grad_batches=3,
                                                  gradient_clip_val=1.0, sync_batchnorm=True),
        "lightning_fabric": fabric,
    },
    "transformers": {
        "trainer_ddp": trainer,
        "trainer_fsdp": lambda: trainer(fsdp="full_shard auto_wrap",
                                        fsdp_config={"transformer_layer_cls_to_wrap": ["BertLayer"]}),
        "trainer_accumulate": lambda: trainer(gradient_accumulation_steps=4, max_grad_norm=0.5, load_best_model_at_end=False),
    },
    "accelerate": {
        "accelerate_sync": lambda: accelerate("test_sync"),
        "accelerate_script": lambda: accelerate("test_script"),
        "accelerate_ops": lambda: accelerate("test_ops"),
    },
    "deepspeed": {f"deepspeed_zero{stage}": lambda stage=stage: zero(stage) for stage in range(1, 4)},
    "peft": {"trainer_adapters": adapters},
}

if __name__ == "__main__":
    if sys.argv[1] == "--list":
        if importlib.util.find_spec(sys.argv[2]):
            print("\n".join(CASES[sys.argv[2]]))
    else:
        {name: case for cases in CASES.values() for name, case in cases.items()}[sys.argv[1]]()
