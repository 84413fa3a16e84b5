// SPDX-License-Identifier: GPL-2.0-only
#pragma once
// How computes read a named output of the model, and how the pair style knows that they will.
#include <cstdint>
#include <string>

#include "model/model.h"

namespace clebsch_lammps {

/// A named output of the last step where it lies, until the next step.
struct ModelOutput {
  clebsch::OutputKind kind = clebsch::OutputKind::unknown;
  std::int64_t rows = 0;   ///< of a per-atom output those of owned nodes, which come first, or more; else 1
  std::int64_t count = 0;  ///< numbers of all rows, of each row as many
  const double* values = nullptr;
};

/// A compute that reads an output of the model.
class OutputReader {
 public:
  virtual ~OutputReader() noexcept(false) = default;  // as that of LAMMPS's Pointers
  virtual const std::string& output_name() const = 0;
};

}  // namespace clebsch_lammps
