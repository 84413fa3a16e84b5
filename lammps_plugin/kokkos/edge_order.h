// SPDX-License-Identifier: GPL-2.0-only
#pragma once
#include <cstdint>

#include "model/model.h"

namespace clebsch_lammps {

/// The transpose of a graph in `graph.col_edge`: the edges of each sender in ascending order, whose places atomics have
/// handed out in any order: in `unordered` on a GPU, in graph.col_edge itself on the host. A graph of more `*edges`
/// than it has room for is left without any, which is a valid one. All pointers are of the execution space.
template <class DeviceType>
void order_edges(const clebsch::DeviceGraph& graph, const int* unordered, const std::int64_t* edges);

}  // namespace clebsch_lammps
