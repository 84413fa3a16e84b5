#include "multilinear/attention/device_kernels.h"

#include "cuda/runtime/kept.h"
#include "cuda/runtime/kernel_compiler.h"
#include "multilinear/embedded_sources.h"

namespace clebsch::attention {
namespace {

const EmbeddedSources& embedded() {
  static const EmbeddedSources sources{{
#include "embedded_attention.inc"
  }};
  return sources;
}

Kernels* load(const KernelShape& shape) {
  const cuda::DeviceLimits& limits = cuda::device_limits(cuda::current_device());
  const int arch = limits.arch;
  std::vector<cuda::CompileRequest> requests;
  for (const std::string& name : device_sources(shape, limits)) requests.push_back({name, device_source(name, shape)});
  cuda::compile_all(requests, arch);
  const auto entries = [&](const std::string& name, const std::vector<std::string>& names) {
    const auto cubin = cuda::cached_compile(cuda::CubinCache::standard(), device_source(name, shape), name, arch);
    return cuda::load_module(cubin.code, names);
  };
  auto kernels = std::make_unique<Kernels>();
  auto found = entries("exact_sums", {"sums_of_keys", "sums_of_queries", "add_chunks", "causal_add", "coefficients"});
  for (size_t at = 0; at < 2; ++at) found[at].take_shared_memory(kExactSumBytes);
  kernels->sums_of_keys = found[0];
  kernels->sums_of_queries = found[1];
  kernels->add_chunks = found[2];
  kernels->causal_add = found[3];
  kernels->coefficients = found[4];
  kernels->quads = takes_quad_kernels(shape, arch);
  found = kernels->quads
              ? entries("exact_quads", {"quad_rows_of_queries", "quad_gradients_of_queries", "quad_gradients_of_keys"})
              : entries("exact_rows", {"rows_of_queries", "gradients_of_queries", "gradients_of_keys"});
  if (kernels->quads) {
    const QuadMemory memory(shape.d, shape.dv);
    found[0].take_shared_memory(static_cast<unsigned>(memory.rows));
    found[1].take_shared_memory(static_cast<unsigned>(memory.queries));
    found[2].take_shared_memory(static_cast<unsigned>(memory.keys));
  }
  kernels->rows_of_queries = found[0];
  kernels->gradients_of_queries = found[1];
  kernels->gradients_of_keys = found[2];
  found = entries("causal_rows", {"causal_rows_of_queries", "causal_gradients_of_queries", "causal_gradients_of_keys"});
  kernels->causal_rows = found[0];
  kernels->causal_gradients_of_queries = found[1];
  kernels->causal_gradients_of_keys = found[2];
  kernels->half = takes_half_kernels(shape, arch);
  if (kernels->half) {
    found = entries("half_sums",
                    {"half_sums", "half_add", "half_query_sums", "causal_half_sums", "causal_half_query_sums"});
    kernels->causal_half_query_sums = found[4];
    kernels->half_query_sums = found[2];
    kernels->causal_half_sums = found[3];
    kernels->half_sums = found[0];
    kernels->half_add = found[1];
    kernels->half_rows = entries("half_rows", {"half_rows"})[0];
    found = entries("half_causal", {"causal_half_add", "causal_half_split", "causal_half_rows"});
    kernels->causal_half_add = found[0];
    kernels->causal_half_split = found[1];
    kernels->causal_half_rows = found[2];
    found = entries("half_causal_gradients",
                    {"causal_half_coefficients", "causal_half_query_gradients", "causal_half_key_gradients"});
    kernels->causal_half_coefficients = found[0];
    kernels->causal_half_query_gradients = found[1];
    kernels->causal_half_key_gradients = found[2];
    found =
        entries("half_gradients", {"half_split", "half_coefficients", "half_query_gradients", "half_key_gradients"});
    kernels->split = found[0];
    kernels->half_coefficients = found[1];
    kernels->query_gradients = found[2];
    kernels->key_gradients = found[3];
  }
  kernels->wide = takes_wide_kernels(shape, limits);
  if (kernels->wide) {
    found = entries("wide_sums", {"wide_sums", "wide_sums_of_two", "wide_sums_of_four", "wide_query_sums",
                                  "wide_query_sums_of_two", "wide_query_sums_of_four"});
    for (size_t at = 0; at < found.size(); ++at) {
      found[at].take_shared_memory(wide_sum_bytes(shape));
      (at < 3 ? kernels->wide_sums[at] : kernels->wide_query_sums[at - 3]) = found[at];
    }
    kernels->wide_rows = entries("wide_rows", {"wide_rows"})[0];
    kernels->wide_rows.take_shared_memory(wide_row_bytes(shape));
    if (const QuadMemory memory(shape.d, shape.dv); memory.rows_over_results()) {
      found = entries("wide_quads", {"wide_quad_rows", "wide_quad_key_gradients"});
      found[0].take_shared_memory(static_cast<unsigned>(memory.rows + (memory.all_rows ? 0 : memory.held)));
      found[1].take_shared_memory(static_cast<unsigned>(memory.keys + (memory.all_keys ? 0 : memory.held)));
      kernels->wide_quad_rows = found[0];
      kernels->wide_quad_key_gradients = found[1];
    }
    found = entries("wide_gradients", {"wide_query_gradients", "wide_key_gradients"});
    kernels->wide_query_gradients = found[0];
    kernels->wide_query_gradients.take_shared_memory(wide_gradient_bytes(shape, false));
    kernels->wide_key_gradients = found[1];
    kernels->wide_key_gradients.take_shared_memory(wide_gradient_bytes(shape, true));
  }
  return kernels.release();
}

}  // namespace

std::shared_ptr<const Kernels> kernels_of(const KernelShape& shape) {
  return cuda::one_a_device<Kernels>([&] { return load(shape); }, shape.number, shape.d, shape.dv);
}

bool takes_half_kernels(const KernelShape& shape, int arch) {
  return shape.number >= kFloat16 && arch >= 80 && shape.d % 32 == 0 && shape.dv % 32 == 0 && shape.d <= 128 &&
         shape.dv <= 128;
}

bool takes_quad_kernels(const KernelShape& shape, int arch) {
  return shape.number != kFloat64 && arch >= 80 && shape.d % 32 == 0 && shape.dv % 32 == 0 && shape.d <= 128 &&
         shape.dv <= 128;
}

bool takes_wide_kernels(const KernelShape& shape, const cuda::DeviceLimits& limits) {
  const auto fits = [](int size) { return size == 64 || size == 128; };
  return shape.number >= kFloat16 && limits.arch == 90 && fits(shape.d) && fits(shape.dv) &&
         limits.dynamic_shared_per_block >= 200 * 1024;
}

std::vector<std::string> device_sources(const KernelShape& shape, const cuda::DeviceLimits& limits) {
  std::vector<std::string> names{"exact_sums", takes_quad_kernels(shape, limits.arch) ? "exact_quads" : "exact_rows",
                                 "causal_rows"};
  if (takes_half_kernels(shape, limits.arch))
    names.insert(names.end(), {"half_sums", "half_rows", "half_gradients", "half_causal", "half_causal_gradients"});
  if (takes_wide_kernels(shape, limits)) {
    names.insert(names.end(), {"wide_sums", "wide_rows", "wide_gradients"});
    if (QuadMemory(shape.d, shape.dv).rows_over_results()) names.push_back("wide_quads");
  }
  return names;
}

std::string device_source(const std::string& name, const KernelShape& shape) {
  return fmt::format("#define CLEBSCH_NUMBER {}\n#define CLEBSCH_D {}\n#define CLEBSCH_DV {}\n", shape.number, shape.d,
                     shape.dv) +
         embedded()[name];
}

}  // namespace clebsch::attention
