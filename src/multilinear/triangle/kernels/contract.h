#pragma once
// Arguments of contract_warpgroups.cu, for the host and for kernels.
#include "cuda/kernels/tensor_map.h"

namespace clebsch::triangle {

/// Rows of a tile of the result; of its 256 columns or less each of two warpgroups has 64 rows.
constexpr int kContractRows = 128;
/// Inner indices of a slab: 128 bytes.
constexpr int kContractSlab = 64;
/// Buffers that a warp has for what it stores: 16 rows, a box of columns each.
constexpr int kContractBuffers = 2;

/// Of all tensors the first dimension is that of adjacent numbers, the last counts matrices.
/// What two blocks of a cluster bring for each other: nothing (then they are no cluster), the columns of a tile for two
/// tiles of rows, the rows for two tiles of columns.
constexpr int kSharesNothing = 0, kSharesColumns = 1, kSharesRows = 2;

struct ContractArguments {
  cuda::TensorMap
      a;  ///< boxes of (inner 64, 128 rows or their half where they are shared), or, turned, (64 rows, inner 64)
  cuda::TensorMap b;                    ///< the same with the columns of a tile
  cuda::TensorMap narrow_b;             ///< with those of a tile of the last round
  cuda::TensorMap c;                    ///< boxes of (64 or 32 columns, 16 rows)
  int row_tiles = 0, column_tiles = 0;  ///< of a matrix; of two that share something one is counted
  int tiles = 0;                        ///< of all matrices, counted so
  int whole_tiles = 0;                  ///< of them those of full rounds; the others come in parts
  int slabs = 0;
};

}  // namespace clebsch::triangle
