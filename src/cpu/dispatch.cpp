#include "cpu/dispatch.h"

#include <atomic>
#include <cstdlib>

#include "core/errors.h"
#include "cpu/kernels.h"

namespace clebsch::cpu {
namespace {

bool available(Isa isa) {
#if defined(__x86_64__)
  switch (isa) {
    case Isa::baseline:
      return true;
    case Isa::avx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    case Isa::avx512:
      return available(Isa::avx2) && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
             __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw");
  }
  return false;
#else
  return isa == Isa::baseline;
#endif
}

Isa best() {
  if (available(Isa::avx512)) return Isa::avx512;
  return available(Isa::avx2) ? Isa::avx2 : Isa::baseline;
}

Isa from_environment() {
  const char* text = std::getenv("CLEBSCH_ISA");
  if (text == nullptr || *text == '\0') return best();
  for (Isa isa : {Isa::baseline, Isa::avx2, Isa::avx512}) {
    if (isa_name(isa) != text) continue;
    require(available(isa), "CLEBSCH_ISA={}: this processor's best instruction set is {}", text, isa_name(best()));
    return isa;
  }
  fail("CLEBSCH_ISA: expected baseline, avx2 or avx512, got '{}'", text);
}

std::atomic<Isa>& chosen() {
  static std::atomic<Isa> value{from_environment()};
  return value;
}

}  // namespace

Isa isa() { return chosen().load(std::memory_order_relaxed); }

void set_isa(Isa isa) {
  require(available(isa), "instruction set {} is not available: this processor's best is {}", isa_name(isa),
          isa_name(best()));
  chosen().store(isa, std::memory_order_relaxed);
}

std::string isa_name(Isa isa) {
  switch (isa) {
    case Isa::avx512:
      return "avx512";
    case Isa::avx2:
      return "avx2";
    default:
      return "baseline";
  }
}

template <>
const KernelTable<float>& kernels<float>() {
#if defined(__x86_64__)
  if (isa() == Isa::avx512) return kernels_float_avx512;
  if (isa() == Isa::avx2) return kernels_float_avx2;
#endif
  return kernels_float_baseline;
}

template <>
const KernelTable<double>& kernels<double>() {
#if defined(__x86_64__)
  if (isa() == Isa::avx512) return kernels_double_avx512;
  if (isa() == Isa::avx2) return kernels_double_avx2;
#endif
  return kernels_double_baseline;
}

}  // namespace clebsch::cpu
