#pragma once
// Run-time choice of the instruction set, in one place.
#include <string>

namespace clebsch::cpu {

enum class Isa { baseline, avx2, avx512 };

/// The best set this machine has; CLEBSCH_ISA=baseline|avx2|avx512 in the environment lowers it (throws Error when
/// it asks for more than the machine has or names something else). Read once.
Isa isa();
/// For tests: overrides the choice in this process; throws Error when the machine lacks it.
void set_isa(Isa isa);
std::string isa_name(Isa isa);

}  // namespace clebsch::cpu
