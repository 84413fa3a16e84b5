// Whole models through the CUDA ops and their autograd, the kernels run by the emulator: tensors lie in host memory and
// every op is sent on to its CUDA implementation. What a GPU adds to this is the GPU.
#include <gtest/gtest.h>
#include <torch/library.h>

#include <cmath>

#include "model/model.h"
#include "model_support.h"

namespace clebsch::testing {
namespace {

constexpr double kCutoff = 4.0;

template <c10::DispatchKey key>
void send_to(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  op.redispatchBoxed(c10::DispatchKeySet(key), stack);
}

/// While this lives, CPU tensors take the CUDA ops.
struct Redirection {
  torch::Library cpu{torch::Library::IMPL, "clebsch", c10::DispatchKey::CPU, __FILE__, __LINE__};
  torch::Library autograd{torch::Library::IMPL, "clebsch", c10::DispatchKey::AutogradCPU, __FILE__, __LINE__};
  Redirection() {
    for (const char* op : {"linear", "species_linear", "gate"}) {
      cpu.impl(op, torch::CppFunction::makeFromBoxedFunction<&send_to<c10::DispatchKey::CUDA>>());
      autograd.impl(op, torch::CppFunction::makeFromBoxedFunction<&send_to<c10::DispatchKey::AutogradCUDA>>());
    }
    for (const char* op : {"interaction", "interaction_backward", "interaction_density", "interaction_density_backward",
                           "pair_repulsion", "pair_repulsion_backward", "allegro_energy", "allegro_energy_gradient",
                           "allegro_energy_backward"})
      cpu.impl(op, torch::CppFunction::makeFromBoxedFunction<&send_to<c10::DispatchKey::CUDA>>());
  }
};

std::shared_ptr<Model> load(const std::string& name, Dtype dtype, const std::string& device) {
  LoadOptions options;
  options.dtype = dtype;
  options.threads = 1;
  options.device = device;
  return Model::load(model_path(name), options);
}

void expect_close(const std::vector<double>& a, const std::vector<double>& b, double tolerance, const char* what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  double largest = 1e-300;
  for (const double x : b) largest = std::max(largest, std::abs(x));
  for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], tolerance * largest) << what << " " << i;
}

void check(const std::string& name, Dtype dtype) {
  const double tolerance = dtype == Dtype::float32 ? 1e-5 : 1e-11;
  const auto on_cpu = load(name, dtype, "cpu");
  const int layers = on_cpu->metadata().layers;
  std::vector<Graph> graphs;
  for (const int atoms : {9, 7, 1, 0}) graphs.push_back(folded_graph(make_system(atoms, 5.0, 5), kCutoff, layers));
  graphs.push_back(ghost_graph(make_system(3, 6.0, 6), kCutoff, layers).graph);
  Request request;
  request.atom_virial = request.centroid_virial = true;
  std::vector<Result> expected(graphs.size()), got(graphs.size());
  for (std::size_t k = 0; k < graphs.size(); ++k) on_cpu->compute(graphs[k].view(), request, expected[k]);
  const Redirection redirection;
  const auto emulated = load(name, dtype, "cpu:padded");
  for (std::size_t k = 0; k < graphs.size(); ++k) emulated->compute(graphs[k].view(), request, got[k]);
  for (std::size_t k = 0; k < graphs.size(); ++k) {
    SCOPED_TRACE(k);
    EXPECT_NEAR(got[k].energy, expected[k].energy, tolerance * std::abs(expected[k].energy));
    expect_close(got[k].forces, expected[k].forces, tolerance, "forces");
    expect_close(got[k].atom_virial, expected[k].atom_virial, tolerance, "atom_virial");
    expect_close(got[k].centroid_virial, expected[k].centroid_virial, tolerance, "centroid_virial");
  }
}

TEST(EmulatedModel, PlainInBothPrecisions) {
  check("plain", Dtype::float64);
  check("plain", Dtype::float32);
}

TEST(EmulatedModel, ParityAndRepulsion) { check("parity", Dtype::float64); }

/// Densities beside the messages; the contraction stays on the CPU (emulated_symmetric_contraction_test).
TEST(EmulatedModel, MaceWithDensities) { check("mace", Dtype::float32); }

TEST(EmulatedModel, AllegroInBothPrecisions) {
  check("allegro", Dtype::float64);
  check("allegro", Dtype::float32);
}

}  // namespace
}  // namespace clebsch::testing
