#include "model/file/validate.h"

#include <torch/csrc/jit/ir/ir.h>

#include <map>
#include <set>

#include "core/errors.h"
#include "core/problem/problem.h"
#include "model/file/allow_list.h"
#include "model/file/archive.h"
#include "model/file/code_scan.h"
#include "model/file/pickle_scan.h"

namespace clebsch {
namespace {

/// Nodes one call of a method may run, calls included: far above any model, far below what would look like a hang.
constexpr int64_t kMaxCost = 1000000;

class GraphCheck {
 public:
  explicit GraphCheck(const std::string& name) : name_(name) {}

  void check_type(const c10::ClassTypePtr& type) {
    if (!seen_.insert(type.get()).second) return;
    expect(type->is_module(), "a module", type->repr_str());
    expect(type->getForwardHooks().empty() && type->getForwardPreHooks().empty(), "no hooks", type->repr_str());
    expect(!type->findMethod("__setstate__") && !type->findMethod("__getstate__"), "no __setstate__", type->repr_str());
    for (auto* method : type->methods()) cost(method);
    for (std::size_t i = 0; i < type->numAttributes(); ++i) {
      if (auto child = type->getAttribute(i)->cast<c10::ClassType>()) check_type(child);
    }
  }

 private:
  /// Checks every node of a method and returns how many nodes a call of it runs.
  int64_t cost(torch::jit::Function* method) {
    const auto known = costs_.find(method);
    if (known != costs_.end()) {
      expect(known->second >= 0, "no recursion", method->name());
      return known->second;
    }
    costs_[method] = -1;
    auto* graph_function = torch::jit::tryToGraphFunction(*method);
    expect(graph_function != nullptr, "a scripted method", method->name());
    const auto graph = graph_function->graph();
    int64_t total = 0;
    for (auto* node : graph->nodes()) {
      const std::string kind = node->kind().toQualString();
      expect(is_allowed_op(kind), "operators of the allow-list (src/model/file/allowed_ops.txt)", kind);
      expect(node->blocks().empty(), "straight-line code", kind);
      for (const auto* output : node->outputs()) {
        expect(output->type()->kind() != c10::TypeKind::FunctionType, "no free functions", kind);
      }
      total += 1;
      if (node->kind() == c10::prim::CallMethod) total += cost(called_method(*node));
      expect(total <= kMaxCost, fmt::format("methods of at most {} operations", kMaxCost), "more");
    }
    return costs_[method] = total;
  }

  torch::jit::Function* called_method(torch::jit::Node& node) {
    const auto type = node.input(0)->type()->cast<c10::ClassType>();
    const std::string name = node.s(c10::attr::name);
    expect(type != nullptr, "a method of a module", name);
    check_type(type);
    auto* method = type->findMethod(name);
    expect(method != nullptr, "a method that exists", name);
    return method;
  }

  void expect(bool condition, std::string_view wanted, std::string_view found) const {
    if (!condition) {
      fail(
          "model file {} refused, nothing of it was run: expected {}, got '{}'. Use a file made by `clebsch export` "
          "and "
          "trusted by you",
          name_, wanted, found.substr(0, 200));
    }
  }

  const std::string& name_;
  std::set<const c10::ClassType*> seen_;
  std::map<torch::jit::Function*, int64_t> costs_;
};

void check_method(const torch::jit::Module& module, const std::string& method, const char* wanted,
                  const std::string& name) {
  const auto found = module.find_method(method);
  require(found.has_value(), "model file {}: expected a method '{}', got none. Export the model again", name, method);
  std::string text;
  const auto& schema = found->function().getSchema();
  for (std::size_t i = 1; i < schema.arguments().size(); ++i)
    text += (i > 1 ? ", " : "") + schema.arguments()[i].type()->repr_str();
  text += " -> " + schema.returns()[0].type()->repr_str();
  require(text == wanted, "model file {}: expected method '{}' to be ({}), got ({})", name, method, wanted, text);
}

void check_methods(const torch::jit::Module& module, const Metadata& metadata, const std::string& name) {
  check_method(module, "forward", "Tensor, Tensor, List[Tensor] -> Dict[str, Tensor]", name);
  check_method(module, "embed", "Tensor -> Tensor", name);
  check_method(module, "readout", "Tensor, Tensor -> Tensor", name);
  if (module.find_method("pair_energy")) {
    check_method(module, "pair_energy", "Tensor, Tensor, List[Tensor] -> Tensor", name);
  }
  if (metadata.training) check_method(module, "extrapolation", "Tensor, Tensor -> Tensor", name);
  // The layer of an Allegro network is one op, which gives its features out by another method.
  if (metadata.family == "allegro" && metadata.features > 0)
    check_method(module, "layer_0_features", "Tensor, Tensor, Tensor, List[Tensor] -> Tensor", name);
  for (int k = 0; k < metadata.layers; ++k) {
    check_method(module, fmt::format("layer_{}", k), "Tensor, Tensor, Tensor, List[Tensor] -> Tensor", name);
  }
}

void check_buffers(const torch::jit::Module& module, const FileMetadata& metadata, const std::string& name) {
  std::set<std::string> listed;
  const auto stored = metadata.shown.dtype == Dtype::float64 ? at::kDouble : at::kFloat;
  std::map<std::string, at::Tensor> tensors;
  for (const auto& named : module.named_attributes(true)) {
    if (named.value.isTensor()) tensors.emplace(named.name, named.value.toTensor());
  }
  auto check = [&](const std::string& buffer, bool compute) {
    const auto found = tensors.find(buffer);
    require(found != tensors.end(), "model file {}: clebsch.json lists a tensor '{}' that the model lacks", name,
            buffer);
    const auto dtype = found->second.scalar_type();
    const bool fits = compute ? dtype == stored : dtype == at::kDouble || dtype == at::kInt || dtype == at::kLong;
    require(fits, "model file {}: expected tensor '{}' of dtype {}, got {}", name, buffer,
            compute ? at::toString(stored) : "Double, Int or Long", at::toString(dtype));
    require(listed.insert(buffer).second, "model file {}: clebsch.json lists tensor '{}' twice", name, buffer);
    require(found->second.is_contiguous(), "model file {}: expected tensor '{}' to be contiguous", name, buffer);
  };
  for (const auto& buffer : metadata.compute) check(buffer, true);
  for (const auto& buffer : metadata.fp64) check(buffer, false);
  for (const auto& [buffer, tensor] : tensors) {
    require(listed.count(buffer) > 0, "model file {}: the model has a tensor '{}' that clebsch.json does not list",
            name, buffer);
  }
}

}  // namespace

CheckedFile validate_file(const std::string& bytes, const std::string& name) {
  const Records records = read_archive(bytes, name);
  CheckedFile checked;
  checked.metadata = parse_metadata(std::string(records.find("extra/clebsch.json")->second), name);
  const CodeClasses classes = scan_code(records, name);
  scan_pickle(records, classes, name);
  checked.archive = rewrite_archive(records, name);
  return checked;
}

void validate_module(const torch::jit::Module& module, const FileMetadata& metadata, const std::string& name) {
  GraphCheck(name).check_type(module.type());
  check_methods(module, metadata.shown, name);
  check_buffers(module, metadata, name);
}

}  // namespace clebsch
