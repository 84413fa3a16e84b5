#pragma once
// Atomic energies from a row's features by itself, and the energies' gradient: a linear part, a hidden layer with silu,
// a scale and a shift of the type. The last step of MACE and NequIP models.
#include <cstdint>

namespace clebsch::cpu {

/// energy[i] = shift[t] + scale[t] (direct . x[i] + sum over j of last[j] silu(sum over c of x[i,c] hidden[c,j])), t
/// the type of i. Without a hidden layer, or without a direct part, that part's pointers are null.
template <typename T>
struct Readout {
  const T* direct = nullptr;                        ///< (width)
  const T *hidden = nullptr, *last = nullptr;       ///< (width, hidden_count), (hidden_count)
  const double *scale = nullptr, *shift = nullptr;  ///< (types)
  int64_t width = 0, hidden_count = 0;
};

/// x (rows, width), types (rows); energy (rows) and, unless null, gradient (rows, width) = d energy[i] / d x[i]. The
/// same bits for any number of threads.
template <typename T>
void readout(const Readout<T>& layers, const T* x, const int32_t* types, int64_t rows, double* energy, T* gradient,
             int threads);

}  // namespace clebsch::cpu
