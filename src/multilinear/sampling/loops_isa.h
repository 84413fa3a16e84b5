// The loops of loops.h for one instruction set: CLEBSCH_VECTOR_BYTES and CLEBSCH_LOOPS, the table's name, are defined by
// the file that includes this one.
#include "multilinear/sampling/loops.h"

namespace clebsch::sampling {
namespace {

constexpr int kLanes = CLEBSCH_VECTOR_BYTES / 8;
typedef double Vector __attribute__((vector_size(CLEBSCH_VECTOR_BYTES)));
typedef double AnyVector __attribute__((vector_size(CLEBSCH_VECTOR_BYTES), aligned(8), may_alias));

inline Vector load(const double* from) { return *reinterpret_cast<const AnyVector*>(from); }
inline void store(double* to, Vector value) { *reinterpret_cast<AnyVector*>(to) = value; }
inline double sum(Vector v) {
  double total = v[0];
  for (int lane = 1; lane < kLanes; ++lane) total += v[lane];
  return total;
}

/// Blocks of `Rows` rows by two vectors of columns stay in registers while all rows of the leaf pass.
void gram(const double* rows, int64_t count, int padded, double* full) {
  constexpr int Rows = kLanes == 8 ? 8 : 4, Columns = 2 * kLanes;
  for (int i = 0; i < padded; i += Rows) {
    for (int j = 0; j < i + Rows; j += Columns) {
      Vector sums[Rows][2] = {};
      for (int64_t k = 0; k < count; ++k) {
        const double* row = rows + k * padded;
        const Vector a = load(row + j), b = load(row + j + kLanes);
        for (int r = 0; r < Rows; ++r) {
          const double factor = row[i + r];
          sums[r][0] += factor * a;
          sums[r][1] += factor * b;
        }
      }
      for (int r = 0; r < Rows; ++r) {
        store(full + (i + r) * padded + j, sums[r][0]);
        store(full + (i + r) * padded + j + kLanes, sums[r][1]);
      }
    }
  }
}

constexpr int kVectors = kTile / kLanes;             // of a tile's row
constexpr int kForms = kVectors >= 8 ? 1 : 8 / kVectors;  // rows of G whose sums fit into registers

void tile_forms(const double* packed, int columns, const double* tile, double* out) {
  Vector total[kVectors] = {};
  for (int i = 0; i < columns; i += kForms) {
    Vector sums[kForms][kVectors] = {};
    const double* row[kForms];
    for (int r = 0; r < kForms; ++r) {
      const int at = i + r < columns ? i + r : i;
      row[r] = packed + static_cast<int64_t>(at) * (at + 1) / 2;
    }
    for (int j = 0; j < i; ++j) {
      Vector h[kVectors];
      for (int v = 0; v < kVectors; ++v) h[v] = load(tile + j * kTile + v * kLanes);
      for (int r = 0; r < kForms; ++r) {
        const double factor = row[r][j];
        for (int v = 0; v < kVectors; ++v) sums[r][v] += factor * h[v];
      }
    }
    for (int r = 0; r < kForms && i + r < columns; ++r) {
      for (int j = i; j <= i + r; ++j) {
        const double factor = row[r][j];
        for (int v = 0; v < kVectors; ++v) sums[r][v] += factor * load(tile + j * kTile + v * kLanes);
      }
      for (int v = 0; v < kVectors; ++v) total[v] += sums[r][v] * load(tile + (i + r) * kTile + v * kLanes);
    }
  }
  for (int v = 0; v < kVectors; ++v) store(out + v * kLanes, total[v]);
}

void tile_products(const double* rows, int64_t count, int columns, const double* tile, double* out) {
  for (int64_t i = 0; i < count; i += kForms) {
    Vector sums[kForms][kVectors] = {};
    const double* row[kForms];
    for (int r = 0; r < kForms; ++r) row[r] = rows + (i + r < count ? i + r : i) * columns;
    for (int j = 0; j < columns; ++j) {
      Vector h[kVectors];
      for (int v = 0; v < kVectors; ++v) h[v] = load(tile + j * kTile + v * kLanes);
      for (int r = 0; r < kForms; ++r) {
        const double factor = row[r][j];
        for (int v = 0; v < kVectors; ++v) sums[r][v] += factor * h[v];
      }
    }
    for (int r = 0; r < kForms && i + r < count; ++r) {
      for (int v = 0; v < kVectors; ++v) store(out + (i + r) * kTile + v * kLanes, sums[r][v]);
    }
  }
}

double dot(const double* a, const double* b, int64_t count) {
  Vector sums[4] = {};
  int64_t k = 0;
  for (; k + 4 * kLanes <= count; k += 4 * kLanes) {
    for (int v = 0; v < 4; ++v) sums[v] += load(a + k + v * kLanes) * load(b + k + v * kLanes);
  }
  for (; k + kLanes <= count; k += kLanes) sums[0] += load(a + k) * load(b + k);
  double total = sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
  for (; k < count; ++k) total += a[k] * b[k];
  return total;
}

void products(const double* rows, int64_t count, int columns, const double* h, double* out) {
  constexpr int Rows = 4;
  int64_t i = 0;
  for (; i + Rows <= count; i += Rows) {
    const double* row = rows + i * columns;
    Vector sums[Rows] = {};
    int j = 0;
    for (; j + kLanes <= columns; j += kLanes) {
      const Vector part = load(h + j);
      for (int r = 0; r < Rows; ++r) sums[r] += load(row + r * columns + j) * part;
    }
    for (int r = 0; r < Rows; ++r) {
      double total = sum(sums[r]);
      for (int rest = j; rest < columns; ++rest) total += row[r * columns + rest] * h[rest];
      out[i + r] = total;
    }
  }
  for (; i < count; ++i) {
    Vector sums = {};
    int j = 0;
    for (; j + kLanes <= columns; j += kLanes) sums += load(rows + i * columns + j) * load(h + j);
    double total = sum(sums);
    for (; j < columns; ++j) total += rows[i * columns + j] * h[j];
    out[i] = total;
  }
}

void add(double* to, const double* from, int64_t count) {
  int64_t k = 0;
  for (; k + kLanes <= count; k += kLanes) store(to + k, load(to + k) + load(from + k));
  for (; k < count; ++k) to[k] += from[k];
}

}  // namespace

extern const Loops CLEBSCH_LOOPS;
const Loops CLEBSCH_LOOPS{gram, tile_forms, tile_products, products, dot, add};

}  // namespace clebsch::sampling
