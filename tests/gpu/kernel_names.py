"""Kernels that Clebsch launches, by op. tests/style/test_kernel_names.py compares them with src/cuda."""

from __future__ import annotations

import re

KERNELS = {
    "interaction": ("interaction_forward", "interaction_backward", "sum_slab", "largest_number", "quanta_to_numbers"),
    "interaction projected": ("projection_forward", "projection_backward"),
    "interaction with density": ("interaction_density_forward", "interaction_density_backward"),
    "tensor_product_conv": ("conv_forward", "conv_backward", "conv_double_backward", "sum_by_sender"),
    "sums of both": ("sum_parts",),
    "edge_embedding": ("edge_embedding_forward", "edge_embedding_backward", "edge_embedding_double_backward"),
    "symmetric_contraction": ("symmetric_forward", "symmetric_backward", "symmetric_tangent"),
    "linear, species_linear, dense": ("node_linear", "group_rows"),
    "gate": ("gate_forward", "gate_backward"),
    "extrapolation": ("grades_float", "grades_double"),
    "pair_repulsion": ("pair_repulsion_forward", "pair_repulsion_backward"),
    "allegro_energy": (
        "allegro_plan",
        "allegro_count",
        "allegro_order",
        "allegro_edges",
        "allegro_edge_gradient",
        "allegro_readout",
        "allegro_features",
        "allegro_dense",
        "allegro_product",
        "allegro_product_backward",
        "allegro_scale_rows",
    ),
    "lists of systems": ("count_pairs", "fill_pairs"),
    "neighbours of a step": ("count_edges", "fill_edges", "count_senders", "place_edges", "order_edges"),
    "scan": ("scan_tiles", "scan_counts"),
    "forces and virial": ("edge_forces", "sum_virial", "sum_system_virials"),
    "exchange of features": (
        "copy_rows_4",
        "copy_rows_8",
        "copy_rows_16",
        "add_rows_float",
        "add_rows_float4",
        "add_rows_double",
        "add_rows_double2",
    ),
    "sampling": (
        "gram_of_128_columns",
        "gram_of_32_columns",
        "gram_of_64_columns",
        "gram_of_96_columns",
        "gram_of_more_columns",
        "sum_nodes",
        "component_tree",
        "column_range",
        "set_entry",
        "start_groups",
        "step_groups",
        "regroup",
        "leverages",
        "walk_32",
        "walk_46",
        "walk_65",
        "walk_92",
        "walk_131",
        "walk_any",
        "mix_samples",
        "take_rows",
        "fill_ones",
    ),
    "triangle_multiplicative_update": (
        "composed_pack",
        "composed_sum",
        "composed_split",
        "composed_largest",
        "composed_scale",
        "composed_normalise",
        "composed_normalise_gradients",
        "composed_output",
        "composed_output_gradients",
        "composed_gate",
        "composed_norm_out",
        "composed_norm_out_gradients",
        "composed_gate_gradients",
        "composed_mask_gradients",
        "pack_images",
        "output_gradients",
        "input_gradients",
        "fold_matrices",
        "fold_norms",
    ),
    "CLEBSCH_CUDA_CHECK": ("check_offsets", "check_range", "check_receivers"),
}
NAMES = tuple(name for names in KERNELS.values() for name in names)


def named_in(line: str) -> str:
    """The kernel that a line of compute-sanitizer, or a profiler's name, speaks of; '' for one of torch's."""
    words = set(re.findall(r"\w+", line))
    return next((name for name in NAMES if name in words), "")
