#include "cuda/runtime/cubin_cache.h"

#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <sstream>
#include <system_error>

#include "cuda/runtime/whole_file.h"

namespace clebsch::cuda {
namespace {

constexpr const char* kMagic = "clebsch-cubin-1";

/// Makes the folder for its owner alone. "" when it is ours and closed to others' writes, else why it is not used.
std::string make_folder(const std::string& folder) {
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(folder).parent_path(), ignored);
  const int made = ::mkdir(folder.c_str(), 0700);
  const int error = errno;
  struct stat info {};
  if (::stat(folder.c_str(), &info) != 0)
    return fmt::format("the folder {} cannot be made: {}", folder, std::strerror(made == 0 ? errno : error));
  if (!S_ISDIR(info.st_mode)) return fmt::format("{} is not a folder", folder);
  if (info.st_uid != ::geteuid()) return fmt::format("the folder {} belongs to another user", folder);
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return fmt::format("the folder {} may be written by others, who could plant code in it (chmod go-w)", folder);
  return "";
}

std::string resources_text(const Cubin& cubin) {
  std::string text;
  for (const KernelResources& k : cubin.kernels) {
    text += fmt::format("{} {} {} {} {}\n", k.name, k.registers, k.shared_bytes, k.stack_bytes, k.spill_bytes);
  }
  return text;
}

using SharedCubin = std::shared_ptr<const Cubin>;

/// The compilations that are going on in this process, and the results that no folder would take.
struct InProcess {
  std::mutex mutex;
  std::map<std::string, std::shared_future<SharedCubin>> running;
  std::map<std::string, SharedCubin> kept;
  std::map<std::string, std::string> refused;  ///< by folder: why it did not take the last file
  std::set<std::string> swept;                 ///< folders
};

InProcess& in_process() {
  static auto* state = new InProcess;  // never destroyed: threads may compile while the process ends
  return *state;
}

/// Removes temporary files that writers have left when they were killed: those that are older than an hour.
void sweep(const std::string& folder) {
  const auto old = std::filesystem::file_time_type::clock::now() - std::chrono::hours(1);
  std::error_code error;
  std::filesystem::directory_iterator entries(folder, error);
  while (!error && entries != std::filesystem::directory_iterator()) {
    const std::filesystem::path path = entries->path();
    const bool temporary = path.stem().extension() == ".cubin" && path.extension().string().size() == 7;
    const auto written = entries->last_write_time(error);
    if (temporary && !error && written < old) std::filesystem::remove(path, error);
    error.clear();  // of a file that another process has removed
    entries.increment(error);
  }
}

}  // namespace

CubinCache::CubinCache(std::string folder) : folder_(std::move(folder)) {
  reason_ = folder_.empty() ? "no folder is set" : make_folder(folder_);
  if (!reason_.empty()) folder_.clear();
}

CubinCache CubinCache::standard() {
  if (const char* given = std::getenv("CLEBSCH_CACHE_DIR")) return CubinCache(given);
  if (const char* base = std::getenv("XDG_CACHE_HOME"); base && *base)
    return CubinCache(std::string(base) + "/clebsch");
  if (const char* home = std::getenv("HOME"); home && *home) return CubinCache(std::string(home) + "/.cache/clebsch");
  CubinCache none("");
  none.reason_ = "none of CLEBSCH_CACHE_DIR, XDG_CACHE_HOME and HOME is set";
  return none;
}

std::string CubinCache::problem() const {
  if (folder_.empty() || ::access(folder_.c_str(), W_OK | X_OK) == 0) return reason_;
  return fmt::format("the folder {} cannot be written: {}", folder_, std::strerror(errno));
}

std::string CubinCache::refusal() const {
  InProcess& state = in_process();
  const std::lock_guard<std::mutex> lock(state.mutex);
  const auto refused = state.refused.find(folder_);
  if (refused == state.refused.end()) return "";
  return fmt::format("the folder {} did not take a file: {}", folder_, refused->second);
}

std::string CubinCache::key(const std::string& source, int arch, const std::string& nvrtc_version) {
  return fmt::format("sm_{} nvrtc {} {}\n{}", arch, nvrtc_version, compile_options(), source);
}

std::string CubinCache::path(const std::string& name, const std::string& key) const {
  if (folder_.empty()) return "";
  const uint64_t hash = fnv(key);
  return fmt::format("{}/{}-{:016x}{:016x}.cubin", folder_, name, hash, fnv(key, hash ^ 0x9e3779b97f4a7c15ull));
}

std::optional<Cubin> CubinCache::load(const std::string& name, const std::string& key) const {
  if (folder_.empty()) return std::nullopt;
  struct stat info {};
  // Others may have put a file here while the folder was open to them. The contents of files are run, so such a file is
  // not used.
  if (::stat(path(name, key).c_str(), &info) != 0 || (info.st_mode & (S_IWGRP | S_IWOTH)) != 0) return std::nullopt;
  std::ifstream file(path(name, key), std::ios::binary);
  if (!file) return std::nullopt;
  std::string header;
  std::getline(file, header);
  std::istringstream fields(header);
  std::string magic;
  uint64_t checksum = 0;
  size_t key_bytes = 0, resource_bytes = 0, code_bytes = 0;
  if (!(fields >> magic >> checksum >> key_bytes >> resource_bytes >> code_bytes) || magic != kMagic)
    return std::nullopt;
  const std::string body((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (key_bytes != key.size() || resource_bytes > body.size() || code_bytes > body.size() ||
      key_bytes + resource_bytes + code_bytes != body.size() || fnv(body) != checksum ||
      body.compare(0, key_bytes, key) != 0) {
    return std::nullopt;
  }
  Cubin cubin;
  std::istringstream lines(body.substr(key_bytes, resource_bytes));
  for (KernelResources k; lines >> k.name >> k.registers >> k.shared_bytes >> k.stack_bytes >> k.spill_bytes;) {
    cubin.kernels.push_back(k);
  }
  cubin.code.assign(body.begin() + static_cast<std::ptrdiff_t>(key_bytes + resource_bytes), body.end());
  cubin.cached = true;
  cubin.file = path(name, key);
  return cubin;
}

bool CubinCache::store(const std::string& name, const std::string& key, const Cubin& cubin) const {
  if (folder_.empty()) return false;
  InProcess& state = in_process();
  {
    const std::lock_guard<std::mutex> lock(state.mutex);
    if (state.swept.insert(folder_).second) sweep(folder_);
  }
  const std::string resources = resources_text(cubin);
  std::string body = key + resources;
  body.append(cubin.code.begin(), cubin.code.end());
  const std::string header =
      fmt::format("{} {} {} {} {}\n", kMagic, fnv(body), key.size(), resources.size(), cubin.code.size());
  const std::string problem = write_whole(path(name, key), header + body);
  const std::lock_guard<std::mutex> lock(state.mutex);
  if (problem.empty()) {
    state.refused.erase(folder_);
  } else {
    state.refused[folder_] = problem;
  }
  return problem.empty();
}

namespace {

Cubin marked_as_cached(const Cubin& cubin) {
  Cubin copy = cubin;
  copy.cached = true;
  return copy;
}

}  // namespace

Cubin cached_compile(const CubinCache& cache, const std::string& source, const std::string& name, int arch) {
  const std::string key = CubinCache::key(source, arch, nvrtc_version());
  if (std::optional<Cubin> found = cache.load(name, key)) {
    found->source = source;
    return *std::move(found);
  }
  InProcess& state = in_process();
  std::promise<SharedCubin> promise;
  const std::shared_future<SharedCubin> result = promise.get_future().share();
  {
    std::unique_lock<std::mutex> lock(state.mutex);
    if (const auto kept = state.kept.find(key); kept != state.kept.end()) return marked_as_cached(*kept->second);
    if (const auto running = state.running.find(key); running != state.running.end()) {
      const std::shared_future<SharedCubin> other = running->second;
      lock.unlock();
      return marked_as_cached(*other.get());
    }
    state.running.emplace(key, result);
  }
  SharedCubin made;
  try {
    Cubin cubin = compile(source, name, arch);
    cubin.source = source;
    if (cache.store(name, key, cubin)) cubin.file = cache.path(name, key);
    made = std::make_shared<const Cubin>(std::move(cubin));
    promise.set_value(made);
  } catch (...) {
    promise.set_exception(std::current_exception());
  }
  {
    const std::lock_guard<std::mutex> lock(state.mutex);
    if (made && made->file.empty()) state.kept.emplace(key, made);
    state.running.erase(key);
  }
  return *result.get();
}

}  // namespace clebsch::cuda
