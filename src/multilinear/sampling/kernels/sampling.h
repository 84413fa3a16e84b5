#pragma once
// Arguments of the kernels in build_tree.cu, draw_groups.cu, draw_rows.cu and sampled_rows.cu, for the device and for
// the launchers. All pointers are of the device.
#include "multilinear/sampling/kernels/tree_shape.h"

namespace clebsch::sampling {

/// Threads of a block of most kernels.
constexpr int kSamplingThreads = 256, kSamplingWarps = kSamplingThreads / 32;
/// Columns of a block of the Gram matrix that one warp has in registers.
constexpr int kGramBlock = 32;
/// Columns of which a block of threads makes all products, and those of others that it multiplies them with.
constexpr int kGramColumns = 128, kGramOthers = 64;

/// Warps of a block of the kernel that stages `groups` times kGramBlock columns: one for every pair.
CLEBSCH_HOST_DEVICE constexpr int gram_warps(int groups) { return groups == 2 ? 3 : groups == 3 ? 6 : 10; }
/// Blocks that a subtree's matrices of so many columns take: for every kGramColumns one and one for every kGramOthers
/// after them.
CLEBSCH_HOST_DEVICE constexpr int gram_parts(int columns) {
  int parts = 0;
  for (int first = 0; first < columns; first += kGramColumns) {
    const int after = columns - first - kGramColumns;
    parts += 1 + (after > 0 ? (after + kGramOthers - 1) / kGramOthers : 0);
  }
  return parts;
}

struct GramArguments {
  TreeShape shape;
  const double* u = nullptr;      ///< (rows, columns)
  const double* scale = nullptr;  ///< (columns), what columns are multiplied with; null: one
  double* nodes = nullptr;        ///< (leaves - 1, packed), written
  double* carry = nullptr;        ///< (nodes of level `base`, packed), written
  int base = 0;                   ///< level whose nodes are the roots of the subtrees that warps or blocks build
  int pairs = 0;                  ///< 1: every row of u lies at a multiple of 16 bytes, and there is no scale
};

struct NodeSumArguments {
  TreeShape shape;
  double* nodes = nullptr;
  const double* from = nullptr;  ///< (nodes of level `level`, packed)
  double* to = nullptr;          ///< (nodes of level `base`, packed), written
  int level = 0, base = 0;
};

struct ComponentArguments {
  TreeShape shape;                     ///< leaves of one row
  const double* components = nullptr;  ///< (rows, columns)
  const double* gram = nullptr;        ///< (columns, columns), multiplied in
  double* nodes = nullptr;             ///< (leaves - 1, packed), written
  double* root = nullptr;              ///< (packed), written
};

struct ColumnArguments {
  const double* u = nullptr;  ///< (rows, columns)
  long long rows = 0;
  int columns = 0;
  unsigned long long* largest = nullptr;  ///< (columns): complement of the bits of the largest magnitude, lowered
  unsigned long long* bad = nullptr;      ///< (1): place of the first number that is not finite, lowered
};

struct EntryArguments {
  TreeShape shape;
  double* u = nullptr;
  const double* scale = nullptr;
  double* nodes = nullptr;
  double* root = nullptr;
  long long row = 0;
  int column = 0;
  double value = 0;
};

/// Samples in the order of their nodes: position p holds sample order[p], which is in `node` with its neighbours from
/// begin[p] to end[p].
struct Groups {
  int* order = nullptr;
  int* node = nullptr;
  int* begin = nullptr;
  int* end = nullptr;
};

struct StepArguments {
  TreeShape shape;
  const double* nodes = nullptr;
  const double* root = nullptr;
  const double* x = nullptr;    ///< (count, columns)
  Way* ways = nullptr;          ///< (count) by sample
  int* left = nullptr;          ///< (count) by position, written: 1 where a sample goes to the left child
  const int* before = nullptr;  ///< (count + 1): sums of `left`
  Groups groups, next;
  int count = 0;
  int level = 0;  ///< to this level; 0: masses of the root
  double slack = 0;
};

struct WalkArguments {
  TreeShape shape;
  const double* u = nullptr;  ///< (rows, columns); not read for leaves of one row
  const double* nodes = nullptr;
  const double* root = nullptr;
  const double* x = nullptr;       ///< (count, columns) for the tree
  const double* leaf_x = nullptr;  ///< the same as rows of u are multiplied with
  const Way* ways = nullptr;       ///< (count); from level 0 only t is read
  Groups groups;                   ///< order and node, not read from level 0
  long long* row = nullptr;        ///< (count) by sample, written
  int count = 0;
  int level = 0;  ///< where the samples are
  double slack = 0;
};

/// Rows of a leaf that the kernel has room for: with a warp a sample, and with a block.
constexpr int kWarpLeafRows = 256, kBlockLeafRows = 1032;

struct MixArguments {
  const double* h = nullptr;             ///< (count, columns)
  const double* components = nullptr;    ///< (components, columns); null: only the uniform numbers
  const long long* component = nullptr;  ///< (count)
  const double* inverse = nullptr;       ///< (columns), of the factor's column norms
  const double* scale = nullptr;         ///< (columns) of the tree; null: x is leaf_x
  double* leaf_x = nullptr;              ///< (count, columns), written
  double* x = nullptr;                   ///< (count, columns), written where there is a scale
  Way* ways = nullptr;                   ///< (count), t is written
  unsigned long long seed = 0;
  int count = 0, columns = 0, factor = 0, stage = 0;
};

struct TakeArguments {
  const double* u = nullptr;        ///< (rows, columns)
  const double* inverse = nullptr;  ///< (columns)
  const long long* row = nullptr;   ///< row[s * row_stride]
  long long row_stride = 1;
  double* h = nullptr;           ///< (count, columns), multiplied with the row and `inverse`
  double* rows = nullptr;        ///< (count, columns), multiplied with the row; null: not wanted
  long long* indices = nullptr;  ///< indices[s * index_stride], written; null: not wanted
  long long index_stride = 0;
  int count = 0, columns = 0;
  int first = 0;  ///< h and rows are written, not multiplied
};

struct LeverageArguments {
  const double* h = nullptr;          ///< (count, columns)
  const double* whitening = nullptr;  ///< (rank, columns)
  double* result = nullptr;           ///< (count)
  int count = 0, columns = 0, rank = 0;
  int weights = 0;  ///< 1: rank / (count leverage); 0: the leverage
};

}  // namespace clebsch::sampling
