// The loops of loops.h for one instruction set: CLEBSCH_VECTOR_BYTES and CLEBSCH_LOOPS, the table's name, are defined
// by the file that includes this one.
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

// Rows of a matrix by samples of a tile that stay in registers while the columns pass: of 16 registers 12, of 32 16.
constexpr int kBlockRows = kLanes == 8 ? 8 : 6, kBlockVectors = 2, kBlock = kBlockVectors * kLanes;

/// sums of rows row[0] .. row[Rows - 1] times columns [0, columns) of the samples that h points to.
template <int Rows>
inline void multiply_block(const double* const* row, int columns, const double* h,
                           Vector (&sums)[Rows][kBlockVectors]) {
  for (int j = 0; j < columns; ++j) {
    const Vector a = load(h + j * kTile), b = load(h + j * kTile + kLanes);
    for (int r = 0; r < Rows; ++r) {
      const double factor = row[r][j];
      sums[r][0] += factor * a;
      sums[r][1] += factor * b;
    }
  }
}

/// Adds what rows i .. i + Rows - 1 of a packed matrix make of every sample's form.
template <int Rows>
inline void add_form_rows(const double* packed, int i, const double* tile, int64_t samples, Vector* total) {
  const double* row[Rows];
  for (int r = 0; r < Rows; ++r) row[r] = packed + static_cast<int64_t>(i + r) * (i + r + 1) / 2;
  for (int from = 0; from < samples; from += kBlock) {
    const double* h = tile + from;
    Vector sums[Rows][kBlockVectors] = {};
    multiply_block<Rows>(row, i, h, sums);
    for (int v = 0; v < kBlockVectors; ++v) {
      Vector own[Rows];
#pragma GCC unroll 8
      for (int r = 0; r < Rows; ++r) own[r] = load(h + (i + r) * kTile + v * kLanes);
      Vector sum = total[from / kLanes + v];
#pragma GCC unroll 8
      for (int r = 0; r < Rows; ++r) {
        Vector part = sums[r][v];
#pragma GCC unroll 8
        for (int d = 0; d <= r; ++d) part += row[r][i + d] * own[d];
        sum += part * own[r];
      }
      total[from / kLanes + v] = sum;
    }
  }
}

void tile_forms(const double* packed, int columns, const double* tile, int64_t samples, double* out) {
  Vector total[kTile / kLanes] = {};
  int i = 0;
  for (; i + kBlockRows <= columns; i += kBlockRows) add_form_rows<kBlockRows>(packed, i, tile, samples, total);
  for (; i + 2 <= columns; i += 2) add_form_rows<2>(packed, i, tile, samples, total);
  if (i < columns) add_form_rows<1>(packed, i, tile, samples, total);
  for (int v = 0; v < kTile / kLanes; ++v) store(out + v * kLanes, total[v]);
}

void tile_products(const double* rows, int64_t count, int columns, const double* tile, int64_t samples, double* out) {
  for (int64_t i = 0; i < count; i += kBlockRows) {
    const double* row[kBlockRows];
    for (int r = 0; r < kBlockRows; ++r) row[r] = rows + (i + r < count ? i + r : i) * columns;
    for (int from = 0; from < samples; from += kBlock) {
      Vector sums[kBlockRows][kBlockVectors] = {};
      multiply_block<kBlockRows>(row, columns, tile + from, sums);
      for (int r = 0; r < kBlockRows && i + r < count; ++r) {
        for (int v = 0; v < kBlockVectors; ++v) store(out + (i + r) * kTile + from + v * kLanes, sums[r][v]);
      }
    }
  }
}

void gather(const double* from, const int64_t* samples, int64_t count, int columns, double* tile) {
  const double* row[kTile];
  const auto used = static_cast<int>((count + kBlock - 1) / kBlock * kBlock);
  for (int s = 0; s < used; ++s) row[s] = from + samples[s < count ? s : count - 1] * columns;
  int c = 0;
#if CLEBSCH_VECTOR_BYTES >= 32
  // Four samples by four columns at a time.
  typedef double Four __attribute__((vector_size(32)));
  typedef double AnyFour __attribute__((vector_size(32), aligned(8), may_alias));
  typedef long long Places __attribute__((vector_size(32)));
  for (; c + 4 <= columns; c += 4) {
    for (int s = 0; s < used; s += 4) {
      const Four a = *reinterpret_cast<const AnyFour*>(row[s] + c),
                 b = *reinterpret_cast<const AnyFour*>(row[s + 1] + c);
      const Four d = *reinterpret_cast<const AnyFour*>(row[s + 2] + c);
      const Four e = *reinterpret_cast<const AnyFour*>(row[s + 3] + c);
      const Places even = {0, 4, 2, 6}, odd = {1, 5, 3, 7}, low = {0, 1, 4, 5}, high = {2, 3, 6, 7};
      const Four ab0 = __builtin_shuffle(a, b, even), ab1 = __builtin_shuffle(a, b, odd);
      const Four de0 = __builtin_shuffle(d, e, even), de1 = __builtin_shuffle(d, e, odd);
      double* to = tile + c * kTile + s;
      *reinterpret_cast<AnyFour*>(to) = __builtin_shuffle(ab0, de0, low);
      *reinterpret_cast<AnyFour*>(to + kTile) = __builtin_shuffle(ab1, de1, low);
      *reinterpret_cast<AnyFour*>(to + 2 * kTile) = __builtin_shuffle(ab0, de0, high);
      *reinterpret_cast<AnyFour*>(to + 3 * kTile) = __builtin_shuffle(ab1, de1, high);
    }
  }
#endif
  for (; c < columns; ++c) {
    for (int s = 0; s < used; ++s) tile[c * kTile + s] = row[s][c];
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
const Loops CLEBSCH_LOOPS{gram, gather, tile_forms, tile_products, products, dot, add};

}  // namespace clebsch::sampling
