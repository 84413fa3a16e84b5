"""Spherical attention: signed weights of unit L2 norm over the keys, exactly and in linear time.

>>> out, norm = spherical_attention(q, k, v)      # (sequences, heads, queries, dv), (sequences, heads, queries)

The library libclebsch_multilinear.so is loaded at the first call. docs/attention.md is the page for users.
"""

from .spherical import spherical_attention, spherical_attention_reference
from .stream import stream_attention, stream_attention_reference

__all__ = [
    "spherical_attention",
    "spherical_attention_reference",
    "stream_attention",
    "stream_attention_reference",
]
