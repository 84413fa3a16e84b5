#pragma once
// What stands between a model file and torch: a model file is a program, and not a trusted one.
//
// Before torch sees a byte: the archive (archive.h), the code's text (code_scan.h), the pickled state (pickle_scan.h),
// the metadata (metadata.h). A scripted `__setstate__` would run inside torch.jit.load, so this order is not a matter
// of taste. After the load and before anything runs: every node of every method is on the allow-list, no hooks, bounded
// cost, the expected methods. Each refusal is one Error that says what was found, what was expected and what to do.
#include <torch/csrc/jit/api/module.h>

#include <string>

#include "model/file/metadata.h"

namespace clebsch {

/// A file that has passed the first half.
struct CheckedFile {
  FileMetadata metadata;
  std::string archive;  ///< rewritten (archive.h), what torch loads
};

/// The first half. `name` is the file's name in messages.
CheckedFile validate_file(const std::string& bytes, const std::string& name);

/// The second half: methods, nodes, attributes, and buffers against the metadata.
void validate_module(const torch::jit::Module& module, const FileMetadata& metadata, const std::string& name);

}  // namespace clebsch
