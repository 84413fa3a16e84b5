// torch's packages are built with NDEBUG, without which RecordFunction has one member more: a debug build of this file
// would read what torch never wrote.
#ifndef NDEBUG
#define NDEBUG
#endif

#include "model/run/op_recorder.h"

#include <ATen/core/function_schema.h>
#include <ATen/record_function.h>

#include <algorithm>

#include "cuda/interaction/interaction.h"

namespace clebsch {

/// What the callback of the recorder in charge adds to.
struct RecordedOps {
  static std::vector<cuda::OpCall>& calls(OpRecorder& recorder) { return recorder.calls_; }
  static std::vector<OpRecorder::FirstInput>& first_inputs(OpRecorder& recorder) { return recorder.first_inputs_; }
};

namespace {

thread_local OpRecorder* recording = nullptr;

cuda::Scalar scalar_of(at::ScalarType type) { return type == at::kFloat ? cuda::Scalar::f32 : cuda::Scalar::f64; }

bool same(const cuda::OpCall& a, const cuda::OpCall& b) {
  return a.op == b.op && a.problem == b.problem && a.scalar == b.scalar && a.mask == b.mask &&
         a.deterministic == b.deterministic && a.splines == b.splines;
}

/// Reads the arguments by the names that ops.schema gives them. Throws when they are not what an op takes.
void record_call(const c10::FunctionSchema& schema, c10::ArrayRef<const c10::IValue> inputs) {
  cuda::OpCall call;
  call.op = schema.name().substr(schema.name().find("::") + 2);
  call.scalar = cuda::Scalar::f64;
  int64_t tables = 0, layer = -1;  // of an interaction
  at::Tensor x;
  const auto& arguments = schema.arguments();
  // In TorchScript `inputs` is the interpreter's whole stack; the arguments of the op are its last entries.
  if (inputs.size() < arguments.size()) return;
  inputs = inputs.slice(inputs.size() - arguments.size());
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& name = arguments[i].name();
    if (name == "problem") call.problem = inputs[i].toStringRef();
    if (name == "layer") layer = inputs[i].toInt();
    if (name == "x") x = inputs[i].toTensor();
    if (name == "x" || name == "grad_harmonics") call.scalar = scalar_of(inputs[i].toTensor().scalar_type());
    if (name == "weights" && inputs[i].isTensorList()) {
      const auto weights = inputs[i].toTensorVector();
      if (!weights.empty()) call.scalar = scalar_of(weights[0].scalar_type());
    }
    if (name == "dtype") call.scalar = scalar_of(inputs[i].toScalarType());
    if (name == "graph") {
      const auto graph = inputs[i].toTensorVector();  // the op itself refuses one of another length
      call.deterministic = graph.size() == 7 && graph[3].numel() > 0;
    }
    const bool fused = call.op == "interaction_density";
    if ((name == "radial" && (fused || call.op == "interaction" || call.op == "interaction_backward" ||
                              call.op == "interaction_density_backward")) ||
        (name == "density" && fused)) {
      const auto radial = inputs[i].toTensorVector();
      const bool exact = radial.empty() || radial[0].numel() == 0;
      // With exact radial functions this op calls other ops, and those are recorded.
      if (exact && (fused || call.op == "interaction")) return;
      if (!exact && name == "radial") tables = radial[0].size(0);
    }
    if (name == "mask") {
      const auto mask = inputs[i].toBoolList();
      call.mask.assign(mask.begin(), mask.end());
    }
  }
  if (tables > 0) {
    const auto problem = cached_problem(call.problem);
    // The loader decides in the same way for a GPU. Without a radial part the op itself refuses the call.
    call.splines = problem->radial && cuda::interaction_splines(tables, *problem->radial, call.scalar);
  }
  const auto alike = [&](const cuda::OpCall& other) { return same(call, other); };
  if (layer == 0 && (call.op == "interaction" || call.op == "interaction_density"))
    RecordedOps::first_inputs(*recording).push_back({call.problem, x.detach()});
  std::vector<cuda::OpCall>& calls = RecordedOps::calls(*recording);
  if (std::none_of(calls.begin(), calls.end(), alike)) calls.push_back(std::move(call));
}

std::unique_ptr<at::ObserverContext> record(const at::RecordFunction& function) {
  if (recording == nullptr) return nullptr;
  const auto schema = function.operator_schema();
  if (!schema || schema->operator_name().getNamespace() != "clebsch") return nullptr;
  try {
    record_call(*schema, function.inputs());
  } catch (const std::exception&) {
    // An exception that leaves a callback is printed by torch. It can be dropped: the op runs next, refuses the same
    // arguments and says why.
  }
  return nullptr;
}

}  // namespace

OpRecorder::OpRecorder()
    : handle_(at::addThreadLocalCallback(
          at::RecordFunctionCallback(record).needsInputs(true).scopes({at::RecordScope::FUNCTION}))) {
  recording = this;
}

OpRecorder::~OpRecorder() {
  recording = nullptr;
  at::removeCallback(handle_);
}

}  // namespace clebsch
