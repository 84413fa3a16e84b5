// Energy and forces of a water dimer from C++: load a model, hand it a neighbour graph, read the result.
// usage: water_dimer models/water-nequip.pt
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "core/graph.h"
#include "model/model.h"

namespace {

struct Atom {
  const char* element;
  std::array<double, 3> x;  // Angstrom
};

const std::vector<Atom> kDimer = {
    {"O", {0.000, 0.000, 0.000}},  {"H", {0.757, 0.586, 0.000}},  {"H", {-0.757, 0.586, 0.000}},
    {"O", {0.000, -2.900, 0.000}}, {"H", {0.000, -1.940, 0.000}}, {"H", {0.927, -3.150, 0.000}},
};

/// All pairs within the model's cutoff, both directions; an open system needs no images.
clebsch::Graph build_graph(const std::vector<Atom>& atoms, const clebsch::Metadata& metadata) {
  std::vector<int64_t> receivers, senders, types;
  std::vector<double> vectors;
  for (const Atom& atom : atoms) {
    const auto& names = metadata.type_names;
    types.push_back(std::find(names.begin(), names.end(), atom.element) - names.begin());
  }
  for (size_t i = 0; i < atoms.size(); ++i)
    for (size_t j = 0; j < atoms.size(); ++j) {
      double d[3], r2 = 0;
      for (int k = 0; k < 3; ++k) d[k] = atoms[j].x[k] - atoms[i].x[k], r2 += d[k] * d[k];
      if (i == j || r2 >= metadata.r_max * metadata.r_max) continue;
      receivers.push_back(static_cast<int64_t>(i));
      senders.push_back(static_cast<int64_t>(j));
      vectors.insert(vectors.end(), d, d + 3);
    }
  const auto n = static_cast<int32_t>(atoms.size());
  clebsch::Graph graph;
  graph.assign(n, n, n, static_cast<int64_t>(senders.size()), receivers.data(), senders.data(), vectors.data(),
               types.data(), metadata.layers);
  return graph;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: water_dimer MODEL.pt\n");
    return 2;
  }
  try {
    const auto model = clebsch::Model::load(argv[1]);
    const clebsch::Graph graph = build_graph(kDimer, model->metadata());
    clebsch::Result result;
    model->compute(graph.view(), clebsch::Request{}, result);
    std::printf("energy %.6f eV\n", result.energy);
    for (size_t i = 0; i < kDimer.size(); ++i)
      std::printf("%s  force %10.5f %10.5f %10.5f eV/Angstrom\n", kDimer[i].element, result.forces[3 * i],
                  result.forces[3 * i + 1], result.forces[3 * i + 2]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
