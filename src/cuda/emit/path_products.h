#pragma once
// The arithmetic of the forward pass for one edge: out[k] += W (x (x) y).
#include <vector>

#include "cuda/emit/emit_common.h"

namespace clebsch::cuda {

/// Emits, for every path of a tile, the terms that add to o<tile>_<out>_<k>; uses x<tile>_<block>_<i>,
/// w<tile>_<path> and y<c>. Either W x first, then each path's terms; or, for paths with the same two inputs, products
/// x y that they share and W last. Whichever is shorter.
void write_products(SourceWriter& w, const EmitContext& context, int tile_index, const Tile& tile);

}  // namespace clebsch::cuda
