#pragma once
// Inner loops of the sampler on the CPU, compiled for several instruction sets and chosen at run time.
#include <cstdint>

namespace clebsch::sampling {

/// Samples that are worked on together: a tile is (columns, kTile), sample fastest.
constexpr int kTile = 16;
/// Rows that the Gram loop reads are padded with zeros to a multiple of this.
constexpr int kRowPadding = 16;

/// A result does not depend on the other samples of a tile.
struct Loops {
  /// full (padded columns, padded columns), lower triangle: sum of u u' over `count` rows (count, padded columns).
  void (*gram)(const double* rows, int64_t count, int padded, double* full);
  /// tile (columns, kTile): rows samples[0] .. samples[count - 1] of `from` (any, columns); the last fills what is
  /// left of the vectors that tile_forms and tile_products work on for `count` samples.
  void (*gather)(const double* from, const int64_t* samples, int64_t count, int columns, double* tile);
  /// out (kTile): h' G h of the first `samples` of a tile; G packed (kernels/tree_shape.h).
  void (*tile_forms)(const double* packed, int columns, const double* tile, int64_t samples, double* out);
  /// out (count, kTile): products of rows (count, columns) with the first `samples` of a tile.
  void (*tile_products)(const double* rows, int64_t count, int columns, const double* tile, int64_t samples,
                        double* out);
  /// out (count): products of rows (count, columns) with h (columns).
  void (*products)(const double* rows, int64_t count, int columns, const double* h, double* out);
  double (*dot)(const double* a, const double* b, int64_t count);
  /// to += from.
  void (*add)(double* to, const double* from, int64_t count);
};

/// The best set of this processor, or what the environment variable CLEBSCH_ISA names.
const Loops& loops();

}  // namespace clebsch::sampling
