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
    SCOPED_TRACE("CLEBSCH_TEST_SEED=" + std::to_string(seed));
    const size_t edges = graph.graph.row_ptr.back();
    const Values out = conv_forward(problem, graph.view, rows, x, harmonics, weights);
    const auto grad = conv_backward(problem, graph.view, rows, x, harmonics, weights, grad_out);
    EXPECT_LE(block_error(problem.out, rows, got.out, out), tolerance);
    EXPECT_LE(block_error(problem.in1, graph.view.n_nodes, got.grad_x, grad.x), tolerance);
    EXPECT_LE(block_error(problem.in2, edges, got.grad_harmonics, grad.harmonics), tolerance);
    EXPECT_LE(array_error(got.grad_weights, grad.weights, edges * problem.weight_count), tolerance);
  }
};

}  // namespace clebsch::reference
