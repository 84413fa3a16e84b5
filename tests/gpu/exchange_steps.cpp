// Two halves of a periodic system in two threads of one process, on one GPU (or another device), with features
// exchanged through the host: steps from graphs, from a neighbour list, and from a list that one half's buffers are too
// small for, each against the whole system on the same device.
//
//   exchange_steps MODEL.pt DEVICE float32|float64 ATOMS SPACING      spacing of the disturbed grid of atoms, Angstrom
//
// Prints one line of JSON a step: which steps it belongs to, the relative errors (RMS of the difference over RMS),
// whether each half replayed and how many parts it has recorded, room for rows in its buffers, and its messages. Exit
// status 1 and a message when something fails.
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "exchange_support.h"

namespace {

using namespace clebsch;
using namespace clebsch::testing;

constexpr int kHalves = 2;
constexpr double kSkin = 1.0;

double rms(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    const double difference = (i < a.size() ? a[i] : NAN) - b[i];
    sum += difference * difference;
  }
  return std::sqrt(sum / std::max<std::size_t>(b.size(), 1));
}

double error(const std::vector<double>& a, const std::vector<double>& b) {
  return rms(a, b) / std::max(rms(b, std::vector<double>(b.size(), 0.0)), 1e-12);
}

std::string quoted(std::string text) {
  for (char& c : text)
    if (c == '"' || c == '\\' || static_cast<unsigned char>(c) < 32) c = ' ';
  return '"' + text + '"';
}

/// The models of a run and what is compared.
class Steps {
 public:
  Steps(const std::string& path, const LoadOptions& options) {
    whole_ = Model::load(path, options);
    device_ = whole_->device();
    for (int p = 0; p < kHalves; ++p) halves_.push_back(Model::load(path, options));
    for (const double cutoff : whole_->metadata().pair_cutoffs) cutoff_ = std::max(cutoff_, cutoff);
  }
  const Metadata& metadata() const { return whole_->metadata(); }
  double cutoff() const { return cutoff_; }

  /// One step: compute(p, exchange, result) evaluates half p, whose nodes are the atoms `nodes[p]`, the first owned[p]
  /// of them its own.
  template <typename Compute>
  void step(const char* name, const System& s, const Request& request, const std::vector<std::vector<int>>& nodes,
            const std::vector<int>& owned, const Compute& compute) {
    Board board(kHalves, s.x.size());
    std::vector<Result> results(kHalves);
    in_processes(kHalves, board, [&](int p) {
      BoardExchange exchange(board, nodes[p], owned[p], p == 0, device_);
      compute(*halves_[p], p, exchange, results[p]);
    });
    Result reference, sum = empty_result(s.x.size());
    whole_->compute(graph(s), request, reference);
    for (int p = 0; p < kHalves; ++p) {
      if (!request.forces) results[p].forces.resize(3 * nodes[p].size());
      if (!request.atom_virial) results[p].atom_virial.resize(6 * nodes[p].size());
      if (!request.centroid_virial) results[p].centroid_virial.resize(9 * nodes[p].size());
      add(sum, results[p], nodes[p], owned[p]);
    }
    std::printf("{\"steps\": \"%s\", \"energy\": %.3e, \"atomic_energy\": %.3e", name,
                std::abs(sum.energy - reference.energy) / std::abs(reference.energy),
                error(sum.atomic_energy, reference.atomic_energy));
    if (request.forces) {
      std::printf(", \"forces\": %.3e, \"virial\": %.3e, \"atom_virial\": %.3e, \"centroid_virial\": %.3e",
                  error(sum.forces, reference.forces),
                  error({sum.virial, sum.virial + 9}, {reference.virial, reference.virial + 9}),
                  error(sum.atom_virial, reference.atom_virial), error(sum.centroid_virial, reference.centroid_virial));
    }
    const auto listed = [&](const char* key, auto&& value) {
      std::printf(", \"%s\": [", key);
      for (int p = 0; p < kHalves; ++p) std::printf("%s%s", p ? ", " : "", value(*halves_[p]).c_str());
      std::printf("]");
    };
    listed("replayed", [](Model& model) { return std::string(model.last_run().replayed ? "true" : "false"); });
    listed("captures", [](Model& model) { return std::to_string(model.last_run().captures); });
    listed("rows", [](Model& model) { return std::to_string(model.last_run().rows); });
    listed("messages", [](Model& model) {
      std::string all;
      for (const std::string& message : model.take_messages()) all += message + "; ";
      return quoted(all);
    });
    std::printf("}\n");
  }

  GraphView graph(const System& s) {
    graph_ = folded_graph(s, cutoff_, metadata().layers);
    return graph_.view();
  }
  Model& half(int p) { return *halves_[p]; }

 private:
  std::string device_;
  double cutoff_ = 0;
  std::shared_ptr<Model> whole_;
  std::vector<std::shared_ptr<Model>> halves_;
  Graph graph_;
};

void move(System& s, int step) {
  for (std::size_t i = 0; i < s.x.size(); ++i)
    for (int d = 0; d < 3; ++d) s.x[i][d] += 0.02 * std::sin(1.0 + step + 3.0 * static_cast<double>(i) + d);
}

void run(int argc, char** argv) {
  if (argc != 6) throw std::runtime_error("expected MODEL.pt DEVICE DTYPE ATOMS SPACING");
  LoadOptions options;
  options.device = argv[2];
  options.dtype = std::string(argv[3]) == "float64" ? Dtype::float64 : Dtype::float32;
  options.threads = 1;
  const int atoms = std::atoi(argv[4]);
  Steps steps(argv[1], options);

  System s = make_system(atoms, std::ceil(std::cbrt(atoms)) * std::atof(argv[5]), 3);
  for (int64_t& type : s.type) type %= static_cast<int64_t>(steps.metadata().type_names.size());
  const auto divided = [&](int atoms_of_first) {
    std::vector<int> process(atoms);
    for (int i = 0; i < atoms; ++i) process[i] = i < atoms_of_first ? 0 : 1;
    return process;
  };
  Request everything;
  everything.atom_virial = everything.centroid_virial = true;
  const Request energies{false, false, false, false, {}};

  for (int step = 0; step < 5; ++step, move(s, step)) {
    const Graph whole = folded_graph(s, steps.cutoff(), steps.metadata().layers);
    std::vector<Part> parts;
    for (int p = 0; p < kHalves; ++p) parts.push_back(part_of(whole, divided(atoms / 2), p));
    steps.step("graphs", s, everything, {parts[0].atom, parts[1].atom}, {parts[0].owned, parts[1].owned},
               [&](Model& model, int p, FeatureExchange& exchange, Result& result) {
                 model.compute(parts[p].graph.view(), everything, result, &exchange);
               });
  }
  // The second division has more atoms in the first half than its buffers hold: it records again, the other does not
  // have to.
  for (const int atoms_of_first : {atoms / 2, 3 * atoms / 4}) {
    std::vector<std::unique_ptr<PartList>> lists;
    for (int p = 0; p < kHalves; ++p) {
      lists.push_back(std::make_unique<PartList>(s, steps.cutoff() + kSkin, divided(atoms_of_first), p));
      steps.half(p).set_neighbours(lists[p]->view);
    }
    const char* name = atoms_of_first == atoms / 2 ? "list" : "another list";
    for (int step = 0; step < 6; ++step, move(s, step)) {
      std::vector<PointsView> points;
      for (int p = 0; p < kHalves; ++p) points.push_back(lists[p]->points(s));
      const Request& request = step == 3 ? energies : everything;
      steps.step(name, s, request, {lists[0]->atom, lists[1]->atom}, {lists[0]->owned, lists[1]->owned},
                 [&](Model& model, int p, FeatureExchange& exchange, Result& result) {
                   model.compute(points[p], request, result, &exchange);
                 });
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "exchange_steps: %s\n", error.what());
    return 1;
  }
  return 0;
}
