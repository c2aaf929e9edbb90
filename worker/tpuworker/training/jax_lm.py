"""A tiny causal language model in plain JAX, data parallel over all devices and hosts.

    train: {entrypoint: tpuworker.training.jax_lm.main, args: {width: 128, layers: 2, heads: 4, learning_rate: 0.003}}

The optimizer is written out (AdamW is a dozen lines), so the example needs nothing but jax.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from tpuworker.session import Session

Params = dict[str, Any]
_MASKED = -1e9
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
    everywhere = session.backend.replicated  # type: ignore[attr-defined] # of the JAX backend
    make = partial(
        init_params,
        vocab_size=session.tokenizer.vocab_size,
        max_length=session.job.spec.data.max_length,
        width=args["width"],
        layers=args["layers"],
    )
    params = jax.jit(make, out_shardings=everywhere)(jax.random.key(args["seed"]))
    moments = jax.jit(lambda p: (zeros_like(p), zeros_like(p), jnp.zeros((), jnp.int32)), out_shardings=everywhere)(
        params
    )

    @partial(jax.jit, donate_argnums=(0, 1), out_shardings=everywhere)
    def train_step(params: Params, moments: Any, batch: Mapping[str, jax.Array]) -> tuple[Params, Any, jax.Array]:
        loss, grads = jax.value_and_grad(loss_of)(params, batch, heads=args["heads"])
        params, moments = adamw(params, grads, moments, args["learning_rate"], args["weight_decay"])
        return params, moments, loss

    for batch in session.batches():
        params, moments, loss = train_step(params, moments, batch)
        session.report(session.step, loss)


def init_params(key: jax.Array, *, vocab_size: int, max_length: int, width: int, layers: int) -> Params:
    """Return the weights, float32: embeddings [vocab, width], [max_length, width], and ``layers`` blocks."""
    keys = iter(jax.random.split(key, 2 + 4 * layers))

    def dense(rows: int, columns: int, scale: float = 1.0) -> jax.Array:
        return scale * jax.random.normal(next(keys), (rows, columns)) / jnp.sqrt(rows)

    return {
        "tokens": 0.02 * jax.random.normal(next(keys), (vocab_size, width)),
        "positions": 0.02 * jax.random.normal(next(keys), (max_length, width)),
        "blocks": [
            {
                "qkv": dense(width, 3 * width),
                "out": dense(width, width, 0.5),
                "up": dense(width, 4 * width),
                "down": dense(4 * width, width, 0.5),
                "norm1": jnp.ones(width),
                "norm2": jnp.ones(width),
            }
            for _ in range(layers)
        ],
        "norm": jnp.ones(width),
    }


def logits_of(params: Params, batch: Mapping[str, jax.Array], *, heads: int) -> jax.Array:
    """Return float32 [rows, length, vocab].

    Args:
        params: Weights.
        batch: ``input_ids`` with ``attention_mask``, int32 [rows, length]; packed ones have ``segment_ids`` and
            ``position_ids`` instead, so that no token sees another document.
        heads: Attention heads; they divide the width.
    """
    ids = batch["input_ids"]
    length = ids.shape[1]
    positions = batch.get("position_ids", jnp.broadcast_to(jnp.arange(length), ids.shape))
    segments = batch["segment_ids"] if "segment_ids" in batch else batch["attention_mask"]
    causal = jnp.tril(jnp.ones((length, length), bool))
    visible = causal & (segments[:, :, None] == segments[:, None, :])  # pads see pads: no row is empty
    x = params["tokens"][ids] + params["positions"][positions]
    for block in params["blocks"]:
        x = x + _attention(block, _norm(x, block["norm1"]), visible[:, None], heads)
        x = x + jax.nn.gelu(_norm(x, block["norm2"]) @ block["up"]) @ block["down"]
    return _norm(x, params["norm"]) @ params["tokens"].T


def loss_of(params: Params, batch: Mapping[str, jax.Array], *, heads: int) -> jax.Array:
    """Return the mean cross entropy of the next token, over the labels that are not masked."""
    logits = logits_of(params, batch, heads=heads)[:, :-1]
    labels = batch["labels"][:, 1:]
    counts = labels != _NO_LABEL
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), jnp.where(counts, labels, 0)[..., None], axis=-1)[..., 0]
    return -jnp.sum(chosen * counts) / jnp.maximum(1, jnp.sum(counts))


def _attention(block: Params, x: jax.Array, visible: jax.Array, heads: int) -> jax.Array:
    rows, length, width = x.shape
    qkv = (x @ block["qkv"]).reshape(rows, length, 3, heads, width // heads)
    q, k, v = (qkv[:, :, part].transpose(0, 2, 1, 3) for part in range(3))
    scores = q @ k.transpose(0, 1, 3, 2) / jnp.sqrt(width // heads)
    mixed = jax.nn.softmax(jnp.where(visible, scores, _MASKED)) @ v
    return mixed.transpose(0, 2, 1, 3).reshape(rows, length, width) @ block["out"]


def _norm(x: jax.Array, scale: jax.Array) -> jax.Array:
    return scale * x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6)


def zeros_like(params: Params) -> Params:
    """Return the same tree with zeros."""
    zeros: Params = jax.tree.map(jnp.zeros_like, params)
    return zeros


def adamw(
    params: Params, grads: Params, moments: tuple[Params, Params, jax.Array], rate: float, decay: float
) -> tuple[Params, tuple[Params, Params, jax.Array]]:
    """Return weights and moments after one step of AdamW (Loshchilov and Hutter 2019), betas 0.9 and 0.99."""
    first, second, count = moments
    count = count + 1
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, grads)
    second = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, second, grads)
    bias1, bias2 = 1 - 0.9**count, 1 - 0.99**count

    def moved(p: jax.Array, m: jax.Array, v: jax.Array) -> jax.Array:
        return p - rate * (m / bias1 / (jnp.sqrt(v / bias2) + 1e-8) + decay * p)

    return jax.tree.map(moved, params, first, second), (first, second, count)
