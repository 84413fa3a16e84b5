"""Spherical attention: signed weights of unit L2 norm over the keys, exactly and in linear time; and attention over the
edges of a graph.

>>> out, norm = spherical_attention(q, k, v)      # (sequences, heads, queries, dv), (sequences, heads, queries)
>>> out = graph_attention(q, k, v, senders, receivers, envelope)      # (nodes, heads, dv)

The library libclebsch_multilinear.so is loaded at the first call. docs/attention.md is the page for users.
"""

from .edge_rows import EdgeRows
from .graph import graph_attention, graph_attention_reference
from .module import SphericalAttention
from .spherical import spherical_attention, spherical_attention_reference
from .stream import stream_attention, stream_attention_reference

__all__ = [
    "EdgeRows",
    "SphericalAttention",
    "graph_attention",
    "graph_attention_reference",
    "spherical_attention",
    "spherical_attention_reference",
    "stream_attention",
    "stream_attention_reference",
]
