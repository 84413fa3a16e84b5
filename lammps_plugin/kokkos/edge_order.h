// SPDX-License-Identifier: GPL-2.0-only
#pragma once
#include <cstdint>

#include "model/model.h"

namespace clebsch_lammps {

/// Finishes a graph's transpose: puts the edges of each sender into ascending order in `graph.col_edge`. Before that
/// they are in the order in which atomics gave them places, on a GPU in `unordered`, on the host in graph.col_edge
/// itself. Where `*edges` is more than the graph has room for, all offsets become 0: a valid graph without edges. All
/// pointers are of the execution space.
template <class DeviceType>
void order_edges(const clebsch::DeviceGraph& graph, const int* unordered, const std::int64_t* edges);

}  // namespace clebsch_lammps
