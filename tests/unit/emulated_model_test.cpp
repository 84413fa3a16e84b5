// Whole models through the CUDA ops and their autograd, the kernels run by the emulator: tensors lie in host memory and
// every op is sent on to its CUDA implementation. What a GPU adds to this is the GPU.
#include <gtest/gtest.h>
#include <torch/library.h>

#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/tensor.h>

#include <cmath>
#include <cstdlib>

#include "core/errors.h"
#include "exchange_support.h"
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
                           "allegro_features", "allegro_features_gradient", "allegro_energy_backward", "extrapolation",
                           "readout", "readout_gradient", "readout_backward"})
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

/// Gives every second edge a copy of its sender, a node behind the atoms that stands for another process's.
Graph with_copies(const Graph& whole, const System& s) {
  const int atoms = static_cast<int>(s.x.size());
  Edges edges;
  for (int i = 0; i < atoms; ++i) {
    for (int e = whole.row_ptr[i]; e < whole.row_ptr[i + 1]; ++e) {
      const double* v = &whole.edge_vec[3 * static_cast<std::size_t>(e)];
      edges.add(i, whole.senders[e] + (e % 2 ? atoms : 0), {v[0], v[1], v[2]});
    }
  }
  std::vector<int64_t> types = s.type;
  types.insert(types.end(), s.type.begin(), s.type.end());
  Graph graph;
  graph.assign(atoms, atoms, 2 * atoms, static_cast<int64_t>(edges.receiver.size()), edges.receiver.data(),
               edges.sender.data(), edges.vec.data(), types.data(), static_cast<int>(whole.layer_rows.size()));
  return graph;
}

/// The process has the copies' atoms itself.
class Loop : public FeatureExchange {
 public:
  void forward(const FeatureRows& rows) override { copies(rows).copy_(atoms(rows)); }
  void reverse(const FeatureRows& rows) override {
    atoms(rows).add_(copies(rows));
    copies(rows).fill_(1e30);  // what is left here must not be read
  }

 private:
  static at::Tensor atoms(const FeatureRows& rows) { return tensor_of(rows, at::kCPU).narrow(0, 0, rows.nodes / 2); }
  static at::Tensor copies(const FeatureRows& rows) {
    return tensor_of(rows, at::kCPU).narrow(0, rows.nodes / 2, rows.nodes / 2);
  }
};

/// The kernels of a step in parts: a layer alone, its input a leaf, gradients of a layer's output by all of its rows.
void check_parts(const std::string& name, Dtype dtype) {
  const double tolerance = dtype == Dtype::float32 ? 1e-5 : 1e-11;
  const auto on_cpu = load(name, dtype, "cpu");
  for (const int atoms : {9, 8}) {
    SCOPED_TRACE(atoms);
    const System s = make_system(atoms, 5.0, 5);
    const Graph whole = folded_graph(s, kCutoff, on_cpu->metadata().layers);
    Result expected, got;
    on_cpu->compute(whole.view(), {}, expected);
    const Redirection redirection;
    const auto emulated = load(name, dtype, "cpu:padded");
    Loop loop;
    emulated->compute(with_copies(whole, s).view(), {}, got, &loop);
    for (int k = 0; k < 3 * atoms; ++k) got.forces[k] += got.forces[3 * atoms + k];
    got.forces.resize(3 * s.x.size());
    EXPECT_NEAR(got.energy, expected.energy, tolerance * std::abs(expected.energy));
    expect_close(got.forces, expected.forces, tolerance, "forces");
  }
}

TEST(EmulatedModel, PartsWithExchanges) {
  check_parts("plain", Dtype::float64);
  check_parts("plain", Dtype::float32);
  check_parts("mace", Dtype::float32);
}

TEST(EmulatedModel, PlainInBothPrecisions) {
  check("plain", Dtype::float64);
  check("plain", Dtype::float32);
}

/// Sets CLEBSCH_CUDA_INTERACTION while it lives.
struct InteractionOption {
  explicit InteractionOption(const char* text) { setenv("CLEBSCH_CUDA_INTERACTION", text, 1); }
  ~InteractionOption() { unsetenv("CLEBSCH_CUDA_INTERACTION"); }
};

TEST(EmulatedModel, FirstLayerProjected) {
  for (const char* name : {"uniform", "mace_uniform"}) {  // the second folds a linear map
    std::size_t bytes = 0;
    for (const char* option : {"projection=0", "projection=1"}) {
      SCOPED_TRACE(std::string(name) + " " + option);
      const InteractionOption set(option);
      check(name, Dtype::float32);
      check_parts(name, Dtype::float32);
      const Redirection redirection;
      const std::size_t now = load(name, Dtype::float32, "cpu:padded")->tables().front().bytes;
      EXPECT_NE(now, bytes);
      bytes = now;
    }
  }
}

TEST(EmulatedModel, ParityAndRepulsion) { check("parity", Dtype::float64); }

/// Densities beside the messages; the contraction stays on the CPU (emulated_symmetric_contraction_test).
TEST(EmulatedModel, MaceWithDensities) { check("mace", Dtype::float32); }

TEST(EmulatedModel, AllegroInBothPrecisions) {
  check("allegro", Dtype::float64);
  check("allegro", Dtype::float32);
}

/// The op on the CPU and on CUDA: features as columns of wider rows, one transform and one a type, an unknown type.
TEST(EmulatedGrades, AsOnTheCpu) {
  const auto op = c10::Dispatcher::singleton()
                      .findSchemaOrThrow("clebsch::extrapolation", "")
                      .typed<at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                        int64_t, std::string_view)>();
  const at::Tensor counts = at::tensor(std::vector<double>{5, 0, 2}, at::kDouble);
  std::vector<int64_t> kinds;
  for (int64_t i = 0; i < 50; ++i) kinds.push_back(i % 3);
  const at::Tensor types = at::tensor(kinds, at::kInt);
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    const at::Tensor wide = at::rand({60, 30}, dtype);
    for (const at::Tensor& x :
         {wide.narrow(0, 3, 50), wide.narrow(0, 3, 50).narrow(1, 2, 24), wide.slice(1, 0, 30, 2).narrow(0, 0, 50)}) {
      for (const int64_t matrices : {1, 3}) {
        const at::Tensor transform = at::rand({matrices, 11, 9}, at::kDouble);
        for (const char* grade : {"leverage", "maxvol"}) {
          const at::Tensor expected = op.call(x, types, transform, counts, 4, grade);
          const Redirection redirection;
          const at::Tensor got = op.call(x, types, transform, counts, 4, grade);
          ASSERT_TRUE(at::allclose(got, expected, 1e-12, 0)) << grade << " " << matrices;
          EXPECT_TRUE(std::isinf(got.const_data_ptr<double>()[1]));
        }
      }
    }
  }
}

/// A graph whose indices can be spoilt, and pair_repulsion of it, which follows senders, rows and types.
struct Repulsion {
  at::Tensor edge_vec = at::ones({3, 3}, at::kDouble), types = ints({0, 1, 0});
  std::vector<at::Tensor> graph{ints({0, 2, 3, 3}), ints({1, 2, 0}), ints({0, 0, 1}), ints({0, 1, 2, 3}),
                                ints({2, 0, 1}),    ints({3}),       ints({3})};

  static at::Tensor ints(const std::vector<int64_t>& values) { return at::tensor(values, at::kInt); }

  at::Tensor run() const {
    const auto reals = at::TensorOptions().dtype(at::kDouble);
    const std::vector<at::Tensor> parameters{at::full({2, 2}, 4.0, reals), at::full({2}, 3.0, reals)};
    return c10::Dispatcher::singleton()
        .findSchemaOrThrow("clebsch::pair_repulsion", "")
        .typed<at::Tensor(const at::Tensor&, at::TensorList, const at::Tensor&, at::TensorList, std::string_view)>()
        .call(edge_vec, graph, types, parameters, "zbl p=6 scale=7.2");
  }

  /// What run() says against one wrong number.
  std::string refusal(at::Tensor& array, int64_t place, int64_t value) {
    const at::Tensor right = array.clone();
    array.select(0, place).fill_(value);
    std::string message;
    try {
      run();
    } catch (const Error& error) {
      message = error.what();
    }
    array.copy_(right);
    return message;
  }
};

/// Sets CLEBSCH_CUDA_CHECK while it lives.
struct IndexChecks {
  explicit IndexChecks(const char* text) { setenv("CLEBSCH_CUDA_CHECK", text, 1); }
  ~IndexChecks() { unsetenv("CLEBSCH_CUDA_CHECK"); }
};

TEST(EmulatedIndexCheck, NamesWhatIsOutOfRange) {
  const Redirection redirection;
  Repulsion op;
  const at::Tensor expected = op.run();
  const IndexChecks on("1");
  EXPECT_TRUE(at::equal(op.run(), expected));
  const auto expect = [&](at::Tensor& array, int64_t place, int64_t value, const std::string& words) {
    const std::string said = op.refusal(array, place, value);
    EXPECT_NE(said.find("pair_repulsion (cuda): " + words), std::string::npos) << words << ": " << said;
  };
  at::Tensor &row_ptr = op.graph[0], &senders = op.graph[1], &receivers = op.graph[2];
  expect(senders, 1, 3, "expected graph's senders[1] in [0, 3), got 3");
  expect(senders, 2, -1, "expected graph's senders[2] in [0, 3), got -1");
  expect(senders, 0, 1 << 30, "expected graph's senders[0] in [0, 3), got 1073741824");
  expect(row_ptr, 3, 4, "expected graph's row_ptr not to decrease and to end at 3 edges at most, got row_ptr[3] = 4");
  expect(row_ptr, 1, 4, "expected graph's row_ptr not to decrease and to end at 3 edges at most, got row_ptr[1] = 4");
  expect(row_ptr, 2, 1, "expected graph's row_ptr not to decrease and to end at 3 edges at most, got row_ptr[2] = 1");
  expect(row_ptr, 0, 1, "expected graph's row_ptr[0] = 0, got 1");
  expect(receivers, 1, 2, "graph's receivers disagree with its row_ptr: expected the row of edge 1, got 2");
  expect(op.graph[3], 3, 2, "graph's row_ptr counts 3 edges, its col_ptr 2");
  expect(op.graph[4], 0, 3, "expected graph's col_edge[0] in [0, 3), got 3");
  expect(op.graph[5], 0, 4, "expected graph's layer_rows[0] in [0, 4), got 4");
  expect(op.graph[6], 0, -1, "expected graph's n_local[0] in [0, 4), got -1");
  expect(op.types, 2, 2, "expected types[2] in [0, 2), got 2");
  // Room that no row uses is not looked at.
  op.graph[0] = Repulsion::ints({0, 1, 2, 2});
  op.graph[2] = Repulsion::ints({0, 1, -7});
  op.graph[3] = op.graph[4] = Repulsion::ints({});
  EXPECT_EQ(op.refusal(senders, 2, 1 << 30), "");
}

TEST(EmulatedIndexCheck, IsOffUnlessAskedFor) {
  const Redirection redirection;
  Repulsion op;
  // A wrong n_local harms nobody here.
  for (const char* off : {"0", ""}) {
    const IndexChecks choice(off);
    EXPECT_EQ(op.refusal(op.graph[6], 0, 99), "");
  }
  EXPECT_EQ(op.refusal(op.graph[6], 0, 99), "");
}

TEST(EmulatedIndexCheck, ModelsGiveTheSame) {
  const IndexChecks on("1");
  check("plain", Dtype::float64);
  check("allegro", Dtype::float64);
}

}  // namespace
}  // namespace clebsch::testing
