#include "model/run/host_graph.h"

#include <algorithm>
#include <cmath>

#include "core/errors.h"
#include "core/graph_passes.h"

namespace clebsch {
namespace {

int threads_of(const Model::Impl& model) { return model.threads > 0 ? model.threads : at::get_num_threads(); }

int64_t row_of(const GraphView& graph, int64_t edge) {
  return std::upper_bound(graph.row_ptr, graph.row_ptr + graph.n_rows + 1, edge) - graph.row_ptr - 1;
}

}  // namespace

void require_finite_vectors(const Model::Impl& model, const GraphView& graph) {
  const int64_t count = 3 * static_cast<int64_t>(graph.row_ptr[graph.n_rows]);
  if (all_finite(graph.edge_vec, count, threads_of(model))) return;
  for (int64_t k = 0; k < count; ++k) {
    if (!std::isfinite(graph.edge_vec[k])) {
      fail("model {}: expected finite edge vectors, got {} at edge {} (row {}, sender {})", model.name,
           graph.edge_vec[k], k / 3, row_of(graph, k / 3), graph.senders[k / 3]);
    }
  }
}

void require_types_in_use(const Model::Impl& model, const int32_t* types, int32_t nodes) {
  for (int32_t i = 0; i < nodes; ++i) {
    if (!model.in_use[types[i]]) {
      fail("model {}: row {} has type {}, which is not among the types in use; load the model for it", model.name, i,
           model.metadata.shown.type_names[types[i]]);
    }
  }
}

GraphView complete_graph(Model::Impl& model, GraphView graph) {
  const auto& metadata = model.metadata.shown;
  const int threads = threads_of(model);
  if (graph.layer_rows == nullptr) {
    model.layer_rows.assign(metadata.layers, graph.n_rows);
    graph.layer_rows = model.layer_rows.data();
    graph.n_layers = metadata.layers;
  }
  require(graph.n_layers == metadata.layers, "model {}: expected layer_rows of {} layers, got {}", model.name,
          metadata.layers, graph.n_layers);
  // A model that is to run on a GPU is tried on the CPU first, when it is loaded: then there is no `run` yet.
  const bool on_gpu = model.run && !model.device.device.is_cpu();
  if (on_gpu) graph.receivers = graph.col_ptr = graph.col_edge = nullptr;  // made there
  validate_graph(graph, static_cast<int>(metadata.type_names.size()), threads);
  require_types_in_use(model, graph.types, graph.n_nodes);
  const int64_t edges = graph.row_ptr[graph.n_rows];
  require(edges == 0 || graph.edge_vec != nullptr, "model {}: expected edge vectors, got none", model.name);
  if (on_gpu) return graph;  // vectors that are not finite make energies that are not, and are looked for then
  if (graph.receivers == nullptr) {
    model.receivers.resize(graph.n_edges);
    fill_receivers(graph, threads, model.receivers.data());
    graph.receivers = model.receivers.data();
  }
  require_finite_vectors(model, graph);
  if (graph.col_ptr == nullptr) {
    transpose_graph(graph, threads, model.col_ptr, model.col_edge, model.col_counts);
    model.col_edge.resize(graph.n_edges);
    graph.col_ptr = model.col_ptr.data();
    graph.col_edge = model.col_edge.data();
  }
  return graph;
}

c10::List<at::Tensor> graph_tensors(const GraphView& graph) {
  c10::List<at::Tensor> list;
  list.push_back(as_tensor(graph.row_ptr, {graph.n_rows + 1}));
  list.push_back(as_tensor(graph.senders, {graph.n_edges}));
  list.push_back(as_tensor(graph.receivers, {graph.n_edges}));
  list.push_back(as_tensor(graph.col_ptr, {graph.n_nodes + 1}));
  list.push_back(as_tensor(graph.col_edge, {graph.n_edges}));
  list.push_back(as_tensor(graph.layer_rows, {graph.n_layers}));
  list.push_back(as_tensor(&graph.n_local, {1}));
  return list;
}

}  // namespace clebsch
