#include "torch/exact_radial.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>

#include "core/errors.h"
#include "core/radial/radial_network.h"
#include "torch/tensors.h"

namespace clebsch::ops {
namespace {

constexpr const char* kOp = "interaction, radial exact";
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Networks and graph of one call.
struct Source {
  GraphView graph;
  int32_t rows = 0;
  int64_t types = 0, columns = 0;
  const double* cutoffs = nullptr;
  RadialNetworks networks;

  /// Calls work(edge, r, rc, network) for the edges inside their cutoff, in parallel.
  template <typename F>
  void over_edges(const F& work) const {
    at::parallel_for(0, graph.row_ptr[rows], 16, [&](int64_t begin, int64_t end) {
      for (int64_t e = begin; e < end; ++e) {
        const double* v = graph.edge_vec + 3 * e;
        const double r = std::sqrt(v[0] * v[0] + v[1] * v[1] + v[2] * v[2]);
        const int64_t pair = graph.types[graph.receivers[e]] * types + graph.types[graph.senders[e]];
        if (r >= cutoffs[pair]) continue;
        work(e, r, cutoffs[pair], *networks[networks.size() == 1 ? 0 : pair]);
      }
    });
  }
};

std::vector<double> doubles(const at::Tensor& tensor) {
  const at::Tensor wide = tensor.to(at::kDouble);
  return {wide.const_data_ptr<double>(), wide.const_data_ptr<double>() + wide.numel()};
}

Source make_source(const at::Tensor& edge_vec, at::TensorList graph, const at::Tensor& types, at::TensorList radial,
                   int64_t layer, const Problem& problem) {
  Source source;
  const CheckedGraph checked = check_graph(kOp, graph, types.numel(), layer);
  source.graph = checked.view;
  source.rows = checked.rows;
  source.types = check_radial(kOp, radial, problem);
  check_types(kOp, types, types.numel(), source.types);
  check_tensor(kOp, "edge_vec", edge_vec, at::kDouble, {source.graph.n_edges, 3});
  source.graph.types = types.const_data_ptr<int32_t>();
  source.graph.edge_vec = edge_vec.const_data_ptr<double>();
  source.cutoffs = radial[2].const_data_ptr<double>();
  source.columns = problem.weight_count;
  const RadialDescription& description = *problem.radial;
  check_tensor(kOp, "radial's network", radial[4], check_compute_dtype(kOp, "network", radial[4]),
               {description.network_values(source.types)});
  std::vector<bool> seen(static_cast<size_t>(source.types), false);
  for (int64_t i = 0; i < types.numel(); ++i) seen[source.graph.types[i]] = true;
  source.networks =
      pair_networks(description, description.pair_weights(), doubles(radial[3]), doubles(radial[4]), seen);
  return source;
}

class ExactRadial : public torch::autograd::Function<ExactRadial> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& edge_vec, std::vector<at::Tensor> graph,
                            const at::Tensor& types, std::vector<at::Tensor> radial, int64_t layer, std::string text,
                            at::ScalarType dtype) {
    const Source source = make_source(edge_vec, graph, types, radial, layer, *cached_problem(text));
    at::Tensor out = at::zeros({edge_vec.size(0), source.columns}, edge_vec.options().dtype(dtype));
    dispatch_dtype(dtype, [&](auto zero) {
      using T = decltype(zero);
      T* values = out.mutable_data_ptr<T>();
      source.over_edges([&](int64_t e, double r, double cutoff, const RadialNetwork& network) {
        std::vector<double> row(static_cast<size_t>(source.columns));
        network.evaluate(r, cutoff, row.data(), nullptr, nullptr);
        std::copy(row.begin(), row.end(), values + e * source.columns);
      });
    });
    ctx->save_for_backward({edge_vec, types});
    ctx->saved_data["graph"] = graph;
    ctx->saved_data["radial"] = radial;
    ctx->saved_data["layer"] = layer;
    ctx->saved_data["problem"] = std::move(text);
    return out;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    at::Tensor grad;
    {
      at::AutoDispatchBelowADInplaceOrView guard;
      const auto graph = ctx->saved_data["graph"].toTensorVector(), radial = ctx->saved_data["radial"].toTensorVector();
      const Source source = make_source(saved[0], graph, saved[1], radial, ctx->saved_data["layer"].toInt(),
                                        *cached_problem(ctx->saved_data["problem"].toStringRef()));
      const at::Tensor up = grads[0].to(at::kDouble).contiguous();
      grad = at::zeros(saved[0].sizes(), saved[0].options().requires_grad(false));
      const double* factors = up.const_data_ptr<double>();
      double* out = grad.mutable_data_ptr<double>();
      source.over_edges([&](int64_t e, double r, double cutoff, const RadialNetwork& network) {
        std::vector<double> slope(static_cast<size_t>(source.columns));
        network.evaluate(r, cutoff, nullptr, slope.data(), nullptr);
        double sum = 0.0;
        for (int64_t c = 0; c < source.columns; ++c) sum += slope[c] * factors[e * source.columns + c];
        for (int d = 0; d < 3; ++d) out[3 * e + d] = sum * source.graph.edge_vec[3 * e + d] / r;
      });
    }
    return {refuse_double_backward(kOp, {grad}, {saved[0], grads[0]})[0], {}, {}, {}, {}, {}, {}};
  }
};

}  // namespace

at::Tensor exact_radial(const at::Tensor& edge_vec, at::TensorList graph, const at::Tensor& types,
                        at::TensorList radial, int64_t layer, const Problem& problem, at::ScalarType dtype) {
  return ExactRadial::apply(edge_vec, graph.vec(), types, radial.vec(), layer, problem.str(), dtype);
}

}  // namespace clebsch::ops
