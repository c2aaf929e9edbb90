"""A tiny causal language model in PyTorch/XLA, data parallel over all devices and hosts by SPMD.

train: {entrypoint: tpuworker.training.torch_xla_lm.main, args: {width: 128, layers: 2, heads: 4}}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own custom
import torch_xla
from torch import nn

from tpuworker.session import Session

_NO_LABEL = -100


def main(session: Session) -> None:
    """Train for the session's steps.

    ``session.args``: ``width`` (128), ``layers`` (2), ``heads`` (4), ``learning_rate`` (0.003), ``weight_decay``
    (0.01), ``seed`` (0).
    """
    args: dict[str, Any] = {
        "width": 128,
        "layers": 2,
        "heads": 4,
        "learning_rate": 3e-3,
        "weight_decay": 0.01,
        "seed": 0,
    }
    args |= session.args
    backend = session.backend
    torch.manual_seed(args["seed"])  # the same weights on all hosts
    model = TinyLM(
        vocab_size=session.tokenizer.vocab_size,
        max_length=session.job.spec.data.max_length,
        width=args["width"],
        layers=args["layers"],
        heads=args["heads"],
    ).to(backend.device)  # type: ignore[attr-defined] # of the torch_xla backend
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=args["learning_rate"],
        betas=(0.9, 0.99),
        weight_decay=args["weight_decay"],
        capturable=True,  # the step counter lives on the device: as a Python number it would be compiled in
    )
    for batch in session.batches():
        optimizer.zero_grad()
        loss = loss_of(model(batch), batch["labels"])
        loss.backward()
        gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
        backend.average_over_hosts(gradients)  # type: ignore[attr-defined] # nothing to do on TPU
        optimizer.step()
        torch_xla.sync()
        session.report(session.step, loss.detach())


class TinyLM(nn.Module):  # type: ignore[misc] # torch is not looked into
    """Embeddings, some blocks of attention, and the transposed embedding as output.

    Args:
        vocab_size: Ids.
        max_length: Positions.
        width: Width of the model.
        layers: Blocks.
        heads: Attention heads; they divide the width.
    """

    def __init__(self, *, vocab_size: int, max_length: int, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, width)
        self.positions = nn.Embedding(max_length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.RMSNorm(width)
        for embedding in (self.tokens, self.positions):
            nn.init.normal_(embedding.weight, std=0.02)

    def forward(self, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return float32 [rows, length, vocab].

        Args:
            batch: ``input_ids`` with ``attention_mask``, int32 [rows, length]; packed ones have ``segment_ids`` and
                ``position_ids`` instead, so that no token sees another document.
        """
        ids = batch["input_ids"].long()
        length = ids.shape[1]
        positions = batch.get("position_ids", torch.arange(length, device=ids.device)[None]).long()
        segments = batch["segment_ids"] if "segment_ids" in batch else batch["attention_mask"]
        causal = torch.ones(length, length, dtype=torch.bool, device=ids.device).tril()
        visible = causal & (segments[:, :, None] == segments[:, None, :])  # pads see pads: no row is empty
        x = self.tokens(ids) + self.positions(positions)
        for block in self.blocks:
            x = block(x, visible[:, None])
        return F.linear(self.norm(x), self.tokens.weight)


class Block(nn.Module):  # type: ignore[misc] # torch is not looked into
    """Attention and a feed-forward layer, normalised before each."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x: torch.Tensor, visible: torch.Tensor) -> torch.Tensor:
        """Return [rows, length, width]; ``visible`` is bool [rows, 1, length, length]."""
        rows, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).reshape(rows, length, 3, self.heads, width // self.heads)
        q, k, v = (qkv[:, :, part].transpose(1, 2) for part in range(3))
        scores = q @ k.transpose(2, 3) * (width // self.heads) ** -0.5
        mixed = scores.masked_fill(~visible, -1e9).softmax(dim=-1) @ v
        x = x + self.out(mixed.transpose(1, 2).reshape(rows, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


def loss_of(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the mean cross entropy of the next token, over the labels that are not masked.

    Args:
        logits: float32 [rows, length, vocab].
        labels: int32 [rows, length]; -100 carries no loss.
    """
    wanted = labels[:, 1:].long()
    counts = wanted != _NO_LABEL
    # By hand, since a boolean index would give a shape that depends on the data, and so a program for each batch.
    log_chances = logits[:, :-1].log_softmax(dim=-1)
    chosen = log_chances.gather(2, torch.where(counts, wanted, 0)[..., None]).squeeze(-1)
    return -(chosen * counts).sum() / counts.sum().clamp(min=1)
