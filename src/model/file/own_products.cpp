#include "model/file/own_products.h"

#include <torch/csrc/jit/ir/ir.h>

#include <set>

namespace clebsch {
namespace {

/// The graph has no blocks (validate_module).
void replace_products(torch::jit::Graph& graph) {
  static const auto dense = c10::Symbol::fromQualString("clebsch::dense");
  for (auto it = graph.nodes().begin(); it != graph.nodes().end(); ++it) {
    torch::jit::Node* const product = *it;
    if (product->kind() != c10::aten::matmul) continue;
    torch::jit::Node* const own = graph.create(dense, product->inputs());
    own->insertBefore(product);
    own->copyMetadata(product);
    own->output()->copyMetadata(product->output());
    product->output()->replaceAllUsesWith(own->output());
    it.destroyCurrent();
  }
}

}  // namespace

void use_own_products(const torch::jit::Module& module) {
  std::set<torch::jit::Graph*> seen;  // modules share classes
  for (const torch::jit::Module& part : module.modules()) {
    for (torch::jit::Function* method : part.type()->methods()) {
      torch::jit::Graph& graph = *torch::jit::toGraphFunction(*method).graph();
      if (seen.insert(&graph).second) replace_products(graph);
    }
  }
}

}  // namespace clebsch
