#pragma once
// Compiled kernels on disk, one file a kernel.
//
// A file is found by a hash of (source, options, architecture, NVRTC version) and believed only when the whole key
// stored in it is equal and its checksum is right; anything else is a miss. Files appear by rename, so readers never
// see half of one, and no lock is taken: two processes that miss at once both compile and the later rename wins. What a
// killed writer leaves has another name and is removed by a writer an hour later. The folder must belong to the user
// and be writable by nobody else, since its contents are run; else it is not used. Nothing here throws for a folder
// that is missing, full or read-only: the cache is then simply not there, and what was compiled is kept in the process
// instead.
#include <optional>
#include <string>

#include "cuda/runtime/nvrtc.h"

namespace clebsch::cuda {

class CubinCache {
 public:
  /// `folder` empty: no cache.
  explicit CubinCache(std::string folder);
  /// CLEBSCH_CACHE_DIR (empty: no cache), else XDG_CACHE_HOME/clebsch, else HOME/.cache/clebsch.
  static CubinCache standard();

  /// Everything that decides the machine code.
  static std::string key(const std::string& source, int arch, const std::string& nvrtc_version);
  std::optional<Cubin> load(const std::string& name, const std::string& key) const;
  /// True when the file is in place.
  bool store(const std::string& name, const std::string& key, const Cubin& cubin) const;
  /// Path of a kernel's file, "" without a cache.
  std::string path(const std::string& name, const std::string& key) const;
  const std::string& folder() const { return folder_; }
  /// Why nothing can be stored: there is no folder, or it cannot be written; "" when something can.
  std::string problem() const;
  /// Why the last file that this process wanted to store in the folder is not there, such as a full disk; "" when it
  /// is.
  std::string refusal() const;

 private:
  std::string folder_, reason_;
};

/// Machine code of a source: from the cache, else compiled and stored. Safe to call from several threads; a source that
/// several ask for at once is compiled once. Throws Error when it cannot be compiled.
Cubin cached_compile(const CubinCache& cache, const std::string& source, const std::string& name, int arch);

}  // namespace clebsch::cuda
