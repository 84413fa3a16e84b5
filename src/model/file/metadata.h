#pragma once
// clebsch.json: the metadata of a model file, every field checked.
#include <string>
#include <vector>

#include "model/model.h"

namespace clebsch {

/// Metadata and the parts of it that only the loader needs.
struct FileMetadata {
  Metadata shown;
  struct Layer {
    std::string module;   ///< path of the module that holds the radial buffers, e.g. "layer0.interaction"
    std::string problem;  ///< text form of its convolution
  };
  std::vector<Layer> radial;               ///< one a layer
  std::vector<std::string> compute, fp64;  ///< dotted names of all buffers, by what the loader does with them
};

/// Parses and checks the text. Throws Error naming the key, what was expected and what came; unknown keys are ignored.
/// `file` is the file's name in messages.
FileMetadata parse_metadata(const std::string& text, const std::string& file);

}  // namespace clebsch
