#pragma once
// Systems of atoms from Python's tensors, and results as tensors (docs/developers/map.md, "Python-visible class").
#include <ATen/core/Dict.h>
#include <ATen/core/Tensor.h>

#include <string>
#include <tuple>

#include "model/model.h"

namespace clebsch {

using Values = c10::Dict<std::string, at::Tensor>;

/// A copy of values as a float64 CPU tensor.
at::Tensor to_tensor(const double* values, at::IntArrayRef shape);

/// Contiguous CPU tensors: positions (N,3) and cells (S,3,3) float64, periodic (S,3) bool, starts (S+1) and types (N)
/// int32, which must live as long as the view is used. Throws Error for others.
SystemsView view_of_systems(const at::Tensor& positions, const at::Tensor& cells, const at::Tensor& periodic,
                            const at::Tensor& starts, const at::Tensor& types);

/// For tests and benchmarks: all pairs within `cutoff` (Angstrom) of systems, searched on the device, "cpu" or
/// "cuda:0". pair_ptr (N+1), senders (P) and shifts (P,3) int32, positions (N,3) float64 that the shifts belong to; on
/// the CPU.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> pairs_of_systems(const at::Tensor& positions,
                                                                            const at::Tensor& cells,
                                                                            const at::Tensor& periodic,
                                                                            const at::Tensor& starts, double cutoff,
                                                                            const std::string& device);

/// energy (), atomic_energy (N), energies (S) and, as asked for, forces (N,3), virials (S,6), atom_virial (N,6).
Values results_of_systems(const SystemsView& systems, const Request& request, const Result& result);

}  // namespace clebsch
