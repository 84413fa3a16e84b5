#pragma once
// What a convolution's kernels fetch into the L2 cache before they load it.
#include "cuda/emit/emit_common.h"

namespace clebsch::cuda {

/// Fetches the weights of an edge further on into the L2 cache, whole rows at a time because memory is fastest in long
/// runs. When the loads of that edge come, they wait for the cache only. Every warp of a launch fetches a share of the
/// row's 128-byte lines.
/// In the double backward pass each warp fetches its own lines, see write_fetch_lines.
void write_fetch_ahead(SourceWriter& w, const EmitContext& context, const UnitKind& kind);

/// The double backward pass: fetches senders, harmonics and what arrives for their gradients, of the next tile, into
/// the L2 cache.
/// `both`: see write_tile_loop.
void write_fetch_rows(SourceWriter& w, const EmitContext& context, bool both);

}  // namespace clebsch::cuda
