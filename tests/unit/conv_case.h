#pragma once
// A random convolution: operands, the reference's answer, the comparison. For every backend's test.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "reference.h"

namespace clebsch::reference {

template <typename T>
std::vector<T> cast(const Values& values) {
  return std::vector<T>(values.begin(), values.end());
}

inline GraphShape small_shape() {
  GraphShape shape;
  shape.n_local = 7;
  shape.n_rows = 9;
  shape.n_nodes = 13;
  return shape;
}

template <typename T>
struct ConvOutput {
  std::vector<T> out, grad_x, grad_harmonics, grad_weights;
};

/// Gradients arriving for those of x, harmonics and weights; an empty one is zero.
struct ConvIncoming {
  Values x, harmonics, weights;
};

struct ConvCase {
  unsigned seed;
  std::mt19937_64 random;
  Problem problem;
  PaddedGraph graph;
  int32_t rows;
  Values x, harmonics, weights, grad_out;

  ConvCase(const std::string& text, const GraphShape& shape, int32_t rows_ = -1)
      : seed(fresh_seed()),
        random(seed),
        problem(Problem::parse(text)),
        graph(random_graph(shape, random), shape.padding),
        rows(rows_ < 0 ? shape.n_rows : rows_),
        x(random_values(shape.n_nodes * problem.in1.dim(), random)),
        harmonics(random_values(graph.view.n_edges * problem.in2.dim(), random)),
        weights(random_values(graph.view.n_edges * problem.weight_count, random)),
        grad_out(random_values(shape.n_nodes * problem.out.dim(), random)) {
    const size_t edges = graph.graph.row_ptr.back();
    std::fill(harmonics.begin() + edges * problem.in2.dim(), harmonics.end(), NAN);
    std::fill(weights.begin() + edges * problem.weight_count, weights.end(), NAN);
  }

  template <typename T>
  void compare(const ConvOutput<T>& got, double tolerance) const {
    const Values out = conv_forward(problem, graph.view, rows, x, harmonics, weights);
    const auto grad = conv_backward(problem, graph.view, rows, x, harmonics, weights, grad_out);
    compare(got, {out, grad.x, grad.harmonics, grad.weights}, tolerance);
  }

  template <typename T>
  void compare(const ConvOutput<T>& got, const ConvOutput<double>& expected, double tolerance) const {
    SCOPED_TRACE("CLEBSCH_TEST_SEED=" + std::to_string(seed));
    const size_t edges = graph.graph.row_ptr.back();
    EXPECT_LE(block_error(problem.out, rows, got.out, expected.out), tolerance);
    EXPECT_LE(block_error(problem.in1, graph.view.n_nodes, got.grad_x, expected.grad_x), tolerance);
    EXPECT_LE(block_error(problem.in2, edges, got.grad_harmonics, expected.grad_harmonics), tolerance);
    EXPECT_LE(array_error(got.grad_weights, expected.grad_weights, edges * problem.weight_count), tolerance);
  }

  /// Random ones; beyond the last edge there is what must not be read.
  ConvIncoming incoming(bool from_x = true, bool from_harmonics = true, bool from_weights = true) {
    ConvIncoming from;
    const size_t edges = graph.graph.row_ptr.back();
    if (from_x) from.x = random_values(x.size(), random);
    if (from_harmonics) from.harmonics = random_values(harmonics.size(), random);
    if (from_weights) from.weights = random_values(weights.size(), random);
    if (from_harmonics) std::fill(from.harmonics.begin() + edges * problem.in2.dim(), from.harmonics.end(), NAN);
    if (from_weights) std::fill(from.weights.begin() + edges * problem.weight_count, from.weights.end(), NAN);
    return from;
  }

  /// The derivative of the backward pass as a sum of forward and backward passes; `out` is that of grad_out.
  ConvOutput<double> double_backward(const ConvIncoming& from) const {
    ConvOutput<double> sum{Values(grad_out.size()), Values(x.size()), Values(harmonics.size()), Values(weights.size())};
    const auto add = [](Values& to, const Values& term) {
      for (size_t k = 0; k < to.size(); ++k) to[k] += term[k];
    };
    // Weightless paths are not linear in W: their part of the third term is dropped.
    Problem weighted = problem;
    weighted.paths.clear();
    for (const Path& path : problem.paths) {
      if (path.weighted) weighted.paths.push_back(path);
    }
    for (int k = 0; k < 3; ++k) {
      const Values& v = k == 0 ? from.x : k == 1 ? from.harmonics : from.weights;
      if (v.empty()) continue;
      const Problem& part = k == 2 ? weighted : problem;
      const Values &a = k == 0 ? v : x, &b = k == 1 ? v : harmonics, &c = k == 2 ? v : weights;
      add(sum.out, conv_forward(part, graph.view, rows, a, b, c));
      const ConvGradients grad = conv_backward(part, graph.view, rows, a, b, c, grad_out);
      if (k != 0) add(sum.grad_x, grad.x);
      if (k != 1) add(sum.grad_harmonics, grad.harmonics);
      if (k != 2) add(sum.grad_weights, grad.weights);
    }
    return sum;
  }
};

}  // namespace clebsch::reference
