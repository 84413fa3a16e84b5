#include "cuda/cubin_cache.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

namespace clebsch::cuda {
namespace {

constexpr const char* kMagic = "clebsch-cubin-1";

/// FNV-1a, 64 bits: finds files and notices damage; it is no defence against an attacker, the folder's owner is.
uint64_t fnv(const std::string& text, uint64_t hash = 1469598103934665603ull) {
  for (unsigned char c : text) hash = (hash ^ c) * 1099511628211ull;
  return hash;
}

/// Makes the folder for its owner alone; false unless it is ours and closed to others' writes.
bool usable(const std::string& folder) {
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(folder).parent_path(), ignored);
  ::mkdir(folder.c_str(), 0700);
  struct stat info {};
  if (::stat(folder.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) return false;
  return info.st_uid == ::geteuid() && (info.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

std::string resources_text(const Cubin& cubin) {
  std::string text;
  for (const KernelResources& k : cubin.kernels) {
    text += fmt::format("{} {} {} {} {}\n", k.name, k.registers, k.shared_bytes, k.stack_bytes, k.spill_bytes);
  }
  return text;
}

}  // namespace

CubinCache::CubinCache(std::string folder) : folder_(std::move(folder)) {
  if (!folder_.empty() && !usable(folder_)) folder_.clear();
}

CubinCache CubinCache::standard() {
  if (const char* given = std::getenv("CLEBSCH_CACHE_DIR")) return CubinCache(given);
  if (const char* base = std::getenv("XDG_CACHE_HOME"); base && *base)
    return CubinCache(std::string(base) + "/clebsch");
  if (const char* home = std::getenv("HOME"); home && *home) return CubinCache(std::string(home) + "/.cache/clebsch");
  return CubinCache("");
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
  return cubin;
}

bool CubinCache::store(const std::string& name, const std::string& key, const Cubin& cubin) const {
  if (folder_.empty()) return false;
  static std::atomic<unsigned> counter{0};
  const std::string target = path(name, key), temporary = fmt::format("{}.{}.{}.tmp", target, ::getpid(), counter++);
  const std::string resources = resources_text(cubin);
  std::string body = key + resources;
  body.append(cubin.code.begin(), cubin.code.end());
  {
    std::ofstream file(temporary, std::ios::binary | std::ios::trunc);
    file << fmt::format("{} {} {} {} {}\n", kMagic, fnv(body), key.size(), resources.size(), cubin.code.size());
    file.write(body.data(), static_cast<std::streamsize>(body.size()));
    file.flush();
    if (!file) {
      file.close();
      ::unlink(temporary.c_str());
      return false;
    }
  }
  if (std::rename(temporary.c_str(), target.c_str()) != 0) {
    ::unlink(temporary.c_str());
    return false;
  }
  return true;
}

Cubin cached_compile(const CubinCache& cache, const std::string& source, const std::string& name, int arch) {
  const std::string key = CubinCache::key(source, arch, nvrtc_version());
  if (std::optional<Cubin> found = cache.load(name, key)) return *std::move(found);
  Cubin cubin = compile(source, name, arch);
  cache.store(name, key, cubin);
  return cubin;
}

}  // namespace clebsch::cuda
