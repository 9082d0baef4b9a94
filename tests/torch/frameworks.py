#!/usr/bin/env python3
"""Trainings of frameworks above PyTorch, where they are installed: `dfshim ci` must find no deadlock in any.

    dfshim ci -- python3 -m torch.distributed.run --nproc-per-node 2 frameworks.py CASE
    frameworks.py --list PACKAGE      its cases; none where it is not installed

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


def lightning(strategy):
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
                      default_root_dir=tempfile.mkdtemp()).fit(Model(), data, data)


def trainer(**options):
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

    class Tokens(Squares):
        def __getitem__(self, i):
            return {"input_ids": torch.randint(0, 100, (16,)), "attention_mask": torch.ones(16, dtype=torch.long),
                    "labels": torch.tensor(i % 2)}

    model = BertForSequenceClassification(BertConfig(vocab_size=100, hidden_size=32, num_hidden_layers=2,
                                                     num_attention_heads=2, intermediate_size=64))
    args = TrainingArguments(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=4, max_steps=40,
                             eval_strategy="steps", eval_steps=10, logging_steps=3, save_strategy="no",
                             report_to=[], **options)
    Trainer(model=model, args=args, train_dataset=Tokens(), eval_dataset=Tokens()).train()


def accelerate(script):
    """One of the scripts with which accelerate tests itself."""
    import accelerate.test_utils

    where = os.path.join(os.path.dirname(accelerate.test_utils.__file__), "scripts", script + ".py")
    sys.argv = [where]
    runpy.run_path(where, run_name="__main__")


CASES = {
    "lightning": {
        "lightning_ddp": lambda: lightning("ddp"),
        "lightning_fsdp": lambda: lightning("fsdp"),
    },
    "transformers": {
        "trainer_ddp": trainer,
        "trainer_fsdp": lambda: trainer(fsdp="full_shard auto_wrap",
                                        fsdp_config={"transformer_layer_cls_to_wrap": ["BertLayer"]}),
    },
    "accelerate": {
        "accelerate_sync": lambda: accelerate("test_sync"),
        "accelerate_script": lambda: accelerate("test_script"),
        "accelerate_ops": lambda: accelerate("test_ops"),
    },
}

if __name__ == "__main__":
    if sys.argv[1] == "--list":
        if importlib.util.find_spec(sys.argv[2]):
            print("\n".join(CASES[sys.argv[2]]))
    else:
        {name: case for cases in CASES.values() for name, case in cases.items()}[sys.argv[1]]()
