#pragma once
// Graph attention on a CUDA device: which kernels are compiled and launched.
#include <string>
#include <vector>

#include "cuda/runtime/driver.h"
#include "multilinear/attention/graph_attention.h"

namespace clebsch::attention {

/// What a kernel is compiled for; number may be any of attention.h. Rows whose size or place in memory is no multiple
/// of 16 bytes are read number by number.
struct GraphKernelShape {
  GraphKind kind;
  bool shared = false;    ///< values are the keys
  bool by_words = false;  ///< rows are read 16 bytes at a time
};

/// q, k, v, envelope of `arguments` to out and norm. Asynchronous on the stream, the host never waits; as all below.
void device_graph_attention(const GraphKind& kind, const GraphArguments& arguments, cuda::Stream stream);
/// grad, out and norm as well, to grad_q, weights, slopes and grad_envelope.
void device_graph_row_gradients(const GraphKind& kind, const GraphArguments& arguments, cuda::Stream stream);
void device_edge_sums(int number, int columns, const EdgeSumArguments& arguments, cuda::Stream stream);
void device_edge_dots(int number, int columns, const EdgeDotArguments& arguments, cuda::Stream stream);

/// The text of "graph_rows", or of "graph_edges" for rows of kind.d numbers, as it is compiled for a shape.
std::string graph_source(const std::string& name, const GraphKernelShape& shape);

}  // namespace clebsch::attention
