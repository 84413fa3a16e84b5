#pragma once
// What the kernels of tensor_product_conv are given.
#include "cuda/plan/schedule.h"
#include "cuda/runtime/kernel_arguments.h"

namespace clebsch::cuda {

/// Operands of a convolution, all device pointers; numbers are float or double as the kernels were made for.
/// Edges are in CSR order by receiver. Sizes are capacities: the true edge count is row_ptr[graph_rows].
struct ConvOperands {
  const void* x = nullptr;             ///< (nodes, in1.dim()), channel fastest
  const void* harmonics = nullptr;     ///< (E, in2.dim())
  const void* weights = nullptr;       ///< (E, weight_count)
  int64_t weight_stride = 0;           ///< numbers between edges: weight_count, or 0 when one row serves all edges
  const int32_t* row_ptr = nullptr;    ///< (graph_rows + 1)
  const int32_t* senders = nullptr;    ///< (E), below nodes
  const int32_t* col_ptr = nullptr;    ///< (nodes + 1), for a deterministic backward
  const int32_t* col_edge = nullptr;   ///< (E)
  const int32_t* row_limit = nullptr;  ///< one number: rows from there on are zero; null: all of graph_rows
  int32_t graph_rows = 0, nodes = 0;
  int64_t edges = 0;  ///< capacity E
};

/// Arguments of the kernel of a pass.
struct ConvArguments {
  Pass pass = Pass::forward;
  ConvOperands o = {};
  bool windows = false;  ///< see BackwardOutputs
  int32_t first_unit = 0, out_rows = 0;
  int32_t multiprocessors = 1;  ///< of the device, for the order in which blocks take receivers
  const void* grad_out = nullptr;
  const void *from_x = nullptr, *from_harmonics = nullptr, *from_weights = nullptr;
  void* bad = nullptr;  ///< with windows: a mark a node, see SumWindowsArguments
  void *out = nullptr, *grad_x = nullptr, *grad_harmonics = nullptr, *grad_weights = nullptr;

  template <typename F>
  void each(F&& visit) {
    visit("const real* __restrict__ x", o.x);
    visit("const real* __restrict__ harmonics", o.harmonics);
    visit("const real* __restrict__ weights", o.weights);
    visit("int64 weight_stride", o.weight_stride);
    visit("const int* __restrict__ row_ptr", o.row_ptr);
    visit("const int* __restrict__ senders", o.senders);
    visit("const int* __restrict__ row_limit", o.row_limit);
    visit("int first_unit", first_unit);
    visit("int graph_rows", o.graph_rows);
    if (pass != Pass::backward) visit("int out_rows", out_rows);
    if (pass != Pass::forward) visit("const real* __restrict__ grad_out", grad_out);
    if (pass == Pass::double_backward) {
      visit("int multiprocessors", multiprocessors);
      visit("const real* __restrict__ from_x", from_x);
      visit("const real* __restrict__ from_harmonics", from_harmonics);
      visit("const real* __restrict__ from_weights", from_weights);
    }
    if (pass != Pass::backward) visit("real* __restrict__ out", out);
    if (pass == Pass::forward) return;
    visit(windows ? "unsigned long long* __restrict__ grad_x" : "real* __restrict__ grad_x", grad_x);
    if (windows) visit("int* __restrict__ bad", bad);
    visit("real* __restrict__ grad_harmonics", grad_harmonics);
    visit("real* __restrict__ grad_weights", grad_weights);
  }
};

}  // namespace clebsch::cuda
