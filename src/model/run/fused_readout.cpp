#include "model/run/fused_readout.h"

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/ir/subgraph_matcher.h>
#include <torch/csrc/jit/passes/inliner.h>
#include <torch/csrc/jit/passes/subgraph_rewrite.h>

#include <set>
#include <string>
#include <vector>

namespace clebsch {
namespace {

using Names = std::unordered_map<std::string, torch::jit::Value*>;

/// Most hidden units, as the kernel of GPUs has them.
constexpr int64_t kMostHidden = 64;

struct Pattern {
  bool direct, hidden;
  /// The values that a pattern and what replaces it share: all of them are used.
  std::string values() const {
    std::string text = "graph(%x, %scale, %shift, %types, %zero, %nought, %one";
    if (direct) text += ", %direct";
    if (hidden) text += ", %hidden, %last";
    if (direct && hidden) text += ", %alpha";
    return text + "):\n";
  }
  std::string from() const {
    std::string text = values();
    if (direct) text += "  %d = clebsch::dense(%x, %direct)\n";
    if (hidden) {
      text += "  %h = clebsch::dense(%x, %hidden)\n";
      text += "  %s = aten::silu(%h)\n";
      text += "  %l = clebsch::dense(%s, %last)\n";
    }
    if (direct && hidden) text += "  %e = aten::add(%d, %l, %alpha)\n";
    text += "  %b = aten::index_select(%shift, %zero, %types)\n";
    text += "  %a = aten::index_select(%scale, %nought, %types)\n";
    text += std::string("  %m = aten::mul(%a, ") + (direct && hidden ? "%e" : direct ? "%d" : "%l") + ")\n";
    text += "  %r = aten::add(%b, %m, %one)\n";
    return text + "  return (%r)";
  }
  std::string to() const {
    std::string text = values();
    text += "  %none : NoneType = prim::Constant()\n";
    text += std::string("  %r = clebsch::readout(%x, ") + (direct ? "%direct, " : "%none, ");
    text += std::string(hidden ? "%hidden, %last, " : "%none, %none, ") + "%scale, %shift, %types)\n";
    return text + "  return (%r)";
  }
};

/// The tensor that a value is read from, through submodules; undefined for another value.
at::Tensor tensor_of(const torch::jit::Value* value, const torch::jit::Module& module) {
  std::vector<std::string> path;
  for (; value->node()->kind() == c10::prim::GetAttr; value = value->node()->input(0))
    path.push_back(value->node()->s(c10::attr::name));
  if (path.empty() || value->node()->kind() != c10::prim::Param) return {};
  c10::IValue at = module._ivalue();
  for (auto name = path.rbegin(); name != path.rend(); ++name) {
    if (!at.isObject()) return {};
    at = at.toObject()->getAttr(*name);
  }
  return at.isTensor() ? at.toTensor() : at::Tensor();
}

bool is_number(const torch::jit::Value* value, int64_t number) {
  const auto constant = torch::jit::toIValue(value);
  return constant && constant->isInt() && constant->toInt() == number;
}

/// Whether clebsch::readout computes what was found: ranks and sizes are as it takes them.
bool fits(const Pattern& pattern, const torch::jit::Match& match, const Names& names,
          const torch::jit::Module& module) {
  const auto value = [&](const char* name) { return match.values_map.at(names.at(name)); };
  const auto tensor = [&](const char* name) { return tensor_of(value(name), module); };
  if (!is_number(value("zero"), 0) || !is_number(value("nought"), 0) || !is_number(value("one"), 1)) return false;
  const at::Tensor scale = tensor("scale"), shift = tensor("shift");
  const auto of_types = [](const at::Tensor& t) {
    return t.defined() && t.dim() == 1 && t.scalar_type() == at::kDouble;
  };
  if (!of_types(scale) || !of_types(shift) || scale.numel() != shift.numel()) return false;
  if (pattern.direct) {
    const at::Tensor direct = tensor("direct");
    if (!direct.defined() || direct.dim() != 1) return false;
  }
  if (pattern.hidden) {
    const at::Tensor hidden = tensor("hidden"), last = tensor("last");
    if (!hidden.defined() || hidden.dim() != 2 || hidden.size(1) > kMostHidden) return false;
    if (!last.defined() || last.dim() != 1 || last.size(0) != hidden.size(1)) return false;
  }
  return !(pattern.direct && pattern.hidden) || is_number(value("alpha"), 1);
}

bool has_dense(const torch::jit::Graph& graph) {
  static const auto dense = c10::Symbol::fromQualString("clebsch::dense");
  for (const torch::jit::Node* node : graph.nodes()) {
    if (node->kind() == dense) return true;
  }
  return false;
}

}  // namespace

void fuse_readouts(torch::jit::Module& module) {
  std::vector<torch::jit::Module> candidates;
  for (const torch::jit::Module& part : module.modules()) {
    const auto method = part.find_method("forward");
    if (method && has_dense(*method->graph())) candidates.push_back(part);
  }
  for (const torch::jit::Module& part : candidates) torch::jit::Inline(*part.get_method("forward").graph());
  for (const Pattern& pattern : {Pattern{true, true}, Pattern{false, true}, Pattern{true, false}}) {
    torch::jit::SubgraphRewriter rewriter;
    rewriter.RegisterRewritePattern(pattern.from(), pattern.to());
    // Modules of one type share their code: it changes if all of them agree.
    std::set<const c10::ClassType*> refused;
    for (const bool look : {true, false}) {
      for (const torch::jit::Module& part : candidates) {
        auto graph = part.get_method("forward").graph();
        rewriter.runOnGraph(graph, [&](const torch::jit::Match& match, const Names& names) {
          if (look && !fits(pattern, match, names, part)) refused.insert(part.type().get());
          return !look && refused.count(part.type().get()) == 0;
        });
      }
    }
  }
}

}  // namespace clebsch
