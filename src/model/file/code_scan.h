#pragma once
// The TorchScript code of a model file, read without trust: only straight-line code over the allow-list passes.
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "model/file/archive.h"

namespace clebsch {

/// A class of a model file: its attributes in order, with their types as written.
struct CodeClass {
  struct Attribute {
    std::string name, type;  ///< type without spaces, e.g. "Tensor", "__torch__.clebsch.export.modules.Layer"
  };
  std::vector<Attribute> attributes;  ///< without the Final constants, which the code holds itself
  std::vector<std::string> uses;      ///< other classes that its attributes and methods name, each once
  std::size_t methods = 0;
};

/// Classes by qualified name ("__torch__.clebsch.export.backend.Model").
using CodeClasses = std::map<std::string, CodeClass, std::less<>>;

/// Parses every code/ record with a grammar of its own and nothing more: classes of modules whose methods are
/// assignments and one return, expressions of names, literals, lists, dictionaries, attributes, method calls,
/// `torch.f(...)` and `ops.clebsch.f(...)` with f on the allow-list. So there is no loop, branch, function, import,
/// `__setstate__`, hook, or foreign op in what passes. Sizes are bounded so that neither this reader nor torch's, which
/// recurses over names, classes and methods and searches lists, runs out of stack or time. Throws Error naming the
/// record, the line, what was found and what was expected.
CodeClasses scan_code(const Records& records, const std::string& file);

}  // namespace clebsch
