// One instruction set and precision of cpu/allegro_kernels.h; see kernels_isa.h for how such files are made.
#pragma once
#include "cpu/kernel_allegro.h"

namespace clebsch::cpu {

extern const AllegroKernels<Real> CLEBSCH_TABLE;
constexpr AllegroKernels<Real> CLEBSCH_TABLE = {kPanel, dense,           silu,        multiply,
                                                dot,    expand_row,      environment, environment_backward,
                                                couple, couple_backward, apply,       apply_backward};

}  // namespace clebsch::cpu
