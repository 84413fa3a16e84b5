#pragma once
// Op calls that between them use every kind of kernel: all named problems, in both number types, with the gradients
// that training and dynamics ask for.
#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "core/problem/named_problems.h"
#include "core/problem/problem.h"
#include "cuda/allegro/allegro_source.h"
#include "cuda/runtime/kernel_table.h"

namespace clebsch::cuda {

struct NamedCall {
  std::string problem;  ///< its name
  OpCall call;
};

namespace registry {

inline void add_convolutions(std::vector<NamedCall>& calls, Scalar scalar) {
  for (const NamedProblem& named : named_problems()) {
    const auto add = [&](const std::string& op, std::vector<bool> mask, bool deterministic, bool splines = false) {
      calls.push_back({named.name, {op, named.problem, scalar, std::move(mask), deterministic, splines}});
    };
    add("tensor_product_conv", {}, true);
    add("tensor_product_conv_backward", {true, true, true}, true);
    add("tensor_product_conv_backward", {true, true, true}, false);
    // grad_out, x, harmonics, weights; of gradients of x, harmonics, weights.
    add("tensor_product_conv_double_backward", std::vector<bool>(7, true), true);
    add("tensor_product_conv_double_backward", std::vector<bool>(7, true), false);
    const auto problem = cached_problem(named.problem);
    const bool uvu = std::all_of(problem->paths.begin(), problem->paths.end(),
                                 [](const Path& path) { return path.mode == Connection::uvu; });
    if (!uvu || !problem->radial) continue;
    const bool density = named.name.rfind("mace-", 0) == 0;
    for (const bool splines : {false, true}) {
      for (const std::string op : {"interaction", "interaction_density"}) {
        if (op != "interaction" && !density) continue;
        add(op, {}, true, splines);
        add(op + "_backward", {true, true}, true, splines);
        add(op + "_backward", {true, true}, false, splines);
        add(op + "_backward", {false, true}, true, splines);
      }
    }
  }
}

inline void add_products(std::vector<NamedCall>& calls, Scalar scalar) {
  std::ifstream file(CLEBSCH_TEST_DATA "/symmetric_problems.txt");
  for (std::string name, text; file >> name && std::getline(file, text);) {
    text = text.substr(1);
    calls.push_back({"symmetric-" + name, {"symmetric_contraction", text, scalar, {}, true}});
    calls.push_back({"symmetric-" + name, {"symmetric_contraction_backward", text, scalar, {true, false}, true}});
    calls.push_back(
        {"symmetric-" + name, {"symmetric_contraction_double_backward", text, scalar, {true, true, false}, true}});
  }
}

/// What stands between the convolutions of MACE M and NequIP M.
inline void add_node_ops(std::vector<NamedCall>& calls, Scalar scalar) {
  calls.push_back(
      {"node-mace-M",
       {"linear", "linear in=256x0e+384x1o+384x2e+256x3o out=128x0e+128x1o+128x2e+128x3o", scalar, {}, true}});
  calls.push_back(
      {"node-nequip-M", {"linear", "linear in=224x0e+352x1o+384x2e out=224x0e+64x1o+32x2e", scalar, {}, true}});
  calls.push_back(
      {"node-nequip-M",
       {"gate", "gate scalars=128x0e gates=96x0e gated=64x1o+32x2e silu=1.6791767923989418 tanh=1", scalar, {}, true}});
}

/// Harmonics and basis of MACE's and of NequIP's edges.
inline void add_edges(std::vector<NamedCall>& calls, Scalar scalar) {
  for (const char* name : {"mace-M", "nequip-M"}) {
    for (const char* op : {"edge_embedding", "edge_embedding_double_backward"}) {
      calls.push_back({std::string("edges-") + name, {op, named_problem(name).problem, scalar, {}, true}});
    }
  }
}

/// Whole Allegro networks.
inline void add_allegro(std::vector<NamedCall>& calls, Scalar scalar) {
  for (const NamedProblem& named : named_allegro_problems())
    calls.push_back({named.name, {"allegro_energy", named.problem, scalar, {}, true}});
}

/// The same kernels and the matrix products without tensor cores or with a block a tile, which an option chooses.
inline KernelJob with_plain_dense(const KernelJob& plain, int arch) {
  return {"allegro_energy and dense=fp32 float", plain.problem, [plain, arch](const CubinCache& cache) {
            std::vector<CompiledPart> parts = plain.compile(cache);
            const auto problem = cached_allegro_problem(plain.problem);
            for (const DenseMath math : {DenseMath::tf32x3_tiles, DenseMath::fp32}) {
              const std::string source = allegro_dense_source(*problem, Scalar::f32, math);
              const int threads = dense_tiling(Scalar::f32, math).threads();
              parts.insert(parts.begin(), {cached_compile(cache, source, "allegro_dense", arch), "", threads, 1});
            }
            return parts;
          }};
}

}  // namespace registry

inline std::vector<NamedCall> registry_calls() {
  std::vector<NamedCall> calls;
  for (const Scalar scalar : {Scalar::f32, Scalar::f64}) {
    registry::add_convolutions(calls, scalar);
    registry::add_products(calls, scalar);
    registry::add_node_ops(calls, scalar);
    registry::add_edges(calls, scalar);
    registry::add_allegro(calls, scalar);
  }
  calls.push_back({"forces", {"pair_repulsion", "zbl p=6 scale=7.1998225", Scalar::f64, {}, true}});
  calls.push_back({"forces", {"allegro_energy_backward", "", Scalar::f64, {}, true}});
  calls.push_back({"forces", {"extrapolation", "", Scalar::f32, {}, true}});
  calls.push_back({"forces", {"readout_gradient", "", Scalar::f32, {}, true}});
  calls.push_back({"forces", {kEdgeForces, "", Scalar::f64, {}, true}});
  return calls;
}

struct NamedJob {
  std::string problem;  ///< its name
  KernelJob job;
};

/// Kernels of all these calls on a device.
inline std::vector<NamedJob> registry_jobs(const DeviceLimits& limits) {
  std::vector<NamedJob> jobs;
  for (const NamedCall& named : registry_calls()) {
    for (KernelJob& job : kernel_jobs(named.call, limits)) jobs.push_back({named.problem, std::move(job)});
    if (named.call.op == "allegro_energy" && named.call.scalar == Scalar::f32)
      jobs.push_back({named.problem, registry::with_plain_dense(jobs.back().job, limits.arch)});
  }
  return jobs;
}

}  // namespace clebsch::cuda
