// Steps from a neighbour list and positions: the same results as from the graph of those positions, on the CPU and
// through a device's buffers, while atoms move, cells change, lists change and edges outgrow their room.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/errors.h"
#include "model/model.h"
#include "model_results.h"
#include "model_support.h"

namespace clebsch::testing {
namespace {

constexpr double kCutoff = 4.0, kSkin = 1.0;

/// A list with what its pointers point at.
struct List {
  std::vector<int32_t> row_ptr{0}, neighbours, shifts, owners, types, layer_rows;
  std::vector<double> positions;
  double cell[9] = {0};
  PairListView view;

  /// Pairs within `cutoff` of a cubic cell; `images`: shifted atoms as points of their own, else shifts.
  List(const System& s, double cutoff, bool images) {
    const int n = static_cast<int>(s.x.size()), reach = static_cast<int>(std::ceil(cutoff / s.length)) + 1;
    for (const Vec& x : s.x) positions.insert(positions.end(), x.begin(), x.end());
    for (int d = 0; d < 3; ++d) cell[4 * d] = s.length;
    for (int i = 0; i < n; ++i) {
      for (int j = 0; j < n; ++j) {
        for (int code = 0, side = 2 * reach + 1; code < side * side * side; ++code) {
          const int shift[3] = {code / side / side - reach, code / side % side - reach, code % side - reach};
          Vec to, v;
          for (int d = 0; d < 3; ++d) to[d] = s.x[j][d] + shift[d] * s.length;
          for (int d = 0; d < 3; ++d) v[d] = to[d] - s.x[i][d];
          if (norm(v) >= cutoff || norm(v) < 1e-9) continue;
          const bool image = images && (shift[0] || shift[1] || shift[2]);
          neighbours.push_back(image ? n + static_cast<int>(owners.size()) : j);
          if (image) {
            owners.push_back(j);
            positions.insert(positions.end(), to.begin(), to.end());
          }
          if (!images) shifts.insert(shifts.end(), shift, shift + 3);
        }
      }
      row_ptr.push_back(static_cast<int32_t>(neighbours.size()));
    }
    types.assign(s.type.begin(), s.type.end());
    view.n_local = view.n_rows = view.n_nodes = n;
    point();
    if (!images) view.shifts = shifts.data();
  }
  /// Nodes that are ghosts; all pairs of rows and nodes.
  explicit List(const GhostGraph& g) : types(g.graph.types), layer_rows(g.graph.layer_rows), positions(g.positions) {
    for (int32_t i = 0; i < g.graph.n_rows; ++i) {
      for (int32_t j = 0; j < g.graph.n_nodes; ++j)
        if (i != j) neighbours.push_back(j);
      row_ptr.push_back(static_cast<int32_t>(neighbours.size()));
    }
    view.n_local = g.graph.n_local;
    view.n_rows = g.graph.n_rows;
    view.n_nodes = g.graph.n_nodes;
    point();
    view.layer_rows = layer_rows.data();
    view.n_layers = static_cast<int32_t>(layer_rows.size());
  }
  PointsView points() const { return {positions.data(), cell}; }

 private:
  void point() {
    view.n_points = static_cast<int32_t>(positions.size() / 3);
    view.row_ptr = row_ptr.data();
    view.neighbours = neighbours.data();
    view.owners = owners.data();
    view.types = types.data();
  }
};

class Points : public ::testing::TestWithParam<std::string> {
 protected:
  Points() {
    LoadOptions options;
    options.dtype = Dtype::float64;
    options.threads = 1;
    plain_ = Model::load(model_path("plain"), options);
    options.device = GetParam();
    model_ = Model::load(model_path("plain"), options);
    request_.atom_virial = request_.centroid_virial = true;
  }
  Result of_points(const PointsView& points) {
    Result result;
    model_->compute(points, request_, result);
    return result;
  }
  Result of_graph(Model& model, const Graph& graph) {
    Result result;
    model.compute(graph.view(), request_, result);
    return result;
  }
  int layers() const { return plain_->metadata().layers; }

  std::shared_ptr<Model> plain_, model_;
  Request request_;
};

TEST_P(Points, AtomsMoveAndTheListStays) {
  for (const bool images : {false, true}) {
    SCOPED_TRACE(images);
    System system = make_system(12, 5.0, 2);
    List list(system, kCutoff + kSkin, images);
    model_->set_neighbours(list.view);
    for (int step = 0; step < 4; ++step) {
      expect_same(of_points(list.points()), of_graph(*plain_, folded_graph(system, kCutoff, layers())));
      // Atom 3 with all its images.
      for (std::size_t point = 0; point < list.positions.size() / 3; ++point) {
        const std::size_t owner = point < 12 ? point : static_cast<std::size_t>(list.owners[point - 12]);
        if (owner == 3) list.positions[3 * point + 1] += 0.12;
      }
      system.x[3][1] += 0.12;
    }
  }
}

TEST_P(Points, ACellThatShrinksTillEdgesOutgrowTheirRoom) {
  System system = make_system(14, 6.0, 4);
  List list(system, kCutoff + 2.5, false);
  model_->set_neighbours(list.view);
  for (const double scale : {1.0, 0.97, 0.85, 0.9, 1.1}) {
    SCOPED_TRACE(scale);
    System scaled = system;
    scaled.length *= scale;
    for (Vec& x : scaled.x)
      for (double& c : x) c *= scale;
    for (std::size_t k = 0; k < scaled.x.size(); ++k) std::copy_n(scaled.x[k].data(), 3, &list.positions[3 * k]);
    for (int d = 0; d < 3; ++d) list.cell[4 * d] = scaled.length;
    expect_same(of_points(list.points()), of_graph(*plain_, folded_graph(scaled, kCutoff, layers())));
  }
}

TEST_P(Points, ListsAndGraphsInTurn) {
  unsigned seed = 30;
  for (const int atoms : {12, 14, 0, 1, 40, 9, 12}) {
    SCOPED_TRACE(atoms);
    const System system = make_system(atoms, atoms < 20 ? 5.0 : 9.0, ++seed);
    const Graph graph = folded_graph(system, kCutoff, layers());
    const Result expected = of_graph(*plain_, graph);
    List list(system, kCutoff + kSkin, atoms == 14);
    model_->set_neighbours(list.view);
    expect_same(of_points(list.points()), expected);
    expect_same(of_graph(*model_, graph), expected);
    expect_same(of_points(list.points()), expected);
  }
}

TEST_P(Points, GhostsAndLayersOfRows) {
  for (const int atoms : {6, 5}) {
    const GhostGraph ghosts = ghost_graph(make_system(atoms, 5.0, 7), kCutoff, layers());
    const List list(ghosts);
    model_->set_neighbours(list.view);
    expect_same(of_points(list.points()), of_graph(*plain_, ghosts.graph));
  }
}

TEST_P(Points, WhatIsWrongIsSaid) {
  const auto refused = [](auto&& work, const std::string& what) {
    try {
      work();
      FAIL() << what;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(what), std::string::npos) << error.what();
    }
  };
  List list(make_system(6, 5.0, 2), kCutoff + kSkin, false);
  refused([&] { of_points(list.points()); }, "expected set_neighbours()");
  model_->set_neighbours(list.view);
  list.positions[7] = std::numeric_limits<double>::quiet_NaN();
  refused([&] { of_points(list.points()); }, "at point 2");
  list.positions[7] = 0;
  list.cell[4] = std::numeric_limits<double>::infinity();
  refused([&] { of_points(list.points()); }, "finite cell");
  refused([&] { of_points({}); }, "expected positions and a cell");
  list.types[0] = 99;
  refused([&] { model_->set_neighbours(list.view); }, "a type of 0 to");
}

INSTANTIATE_TEST_SUITE_P(Devices, Points, ::testing::Values("cpu", "cpu:padded"),
                         [](const auto& device) { return std::string(device.param == "cpu" ? "Cpu" : "Padded"); });

}  // namespace
}  // namespace clebsch::testing
