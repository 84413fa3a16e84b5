#include "cuda/runtime/nvrtc.h"

#include <dlfcn.h>
#include <link.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <mutex>
#include <sstream>

#include "core/errors.h"
#include "cuda/runtime/shared_library.h"

namespace clebsch::cuda {
namespace {

// The part of nvrtc.h that is used, declared here so that no toolkit is needed to build.
using Program = struct NvrtcProgram*;
using Result = int;

struct Nvrtc {
  Nvrtc();
  SharedLibrary library;
  Result (*version)(int*, int*);
  Result (*create)(Program*, const char*, const char*, int, const char* const*, const char* const*);
  Result (*destroy)(Program*);
  Result (*compile)(Program, int, const char* const*);
  Result (*log_size)(Program, size_t*);
  Result (*log)(Program, char*);
  Result (*cubin_size)(Program, size_t*);
  Result (*cubin)(Program, char*);
  const char* (*error_string)(Result);
};

/// CLEBSCH_NVRTC first, then what the process has loaded or the loader finds, then torch's wheels, then the toolkit.
std::vector<std::string> candidates() {
  std::vector<std::string> names;
  if (const char* given = std::getenv("CLEBSCH_NVRTC")) names.emplace_back(given);
  const std::vector<std::string> versions = {"libnvrtc.so.13", "libnvrtc.so.12"};
  // torch's own libraries lie in site-packages/torch/lib, the compiler of its wheels in site-packages/nvidia.
  if (void* torch = dlopen("libtorch_cpu.so", RTLD_NOW | RTLD_NOLOAD)) {
    link_map* map = nullptr;
    if (dlinfo(torch, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name) {
      const auto packages = std::filesystem::path(map->l_name).parent_path().parent_path().parent_path();
      for (const char* folder : {"nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib", "torch/lib"}) {
        for (const std::string& version : versions) names.push_back((packages / folder / version).string());
      }
    }
    dlclose(torch);
  }
  names.insert(names.end(), versions.begin(), versions.end());
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
    const char* root = std::getenv(variable);
    if (root) names.push_back(std::string(root) + "/lib64/libnvrtc.so");
  }
  for (const char* folder : {"lib64", "lib", "targets/x86_64-linux/lib"}) {
    names.push_back(std::string("/usr/local/cuda/") + folder + "/libnvrtc.so");
  }
  return names;
}

Nvrtc::Nvrtc()
    : library("libnvrtc, the CUDA run-time compiler", candidates()),
      version(library.function<decltype(version)>("nvrtcVersion")),
      create(library.function<decltype(create)>("nvrtcCreateProgram")),
      destroy(library.function<decltype(destroy)>("nvrtcDestroyProgram")),
      compile(library.function<decltype(compile)>("nvrtcCompileProgram")),
      log_size(library.function<decltype(log_size)>("nvrtcGetProgramLogSize")),
      log(library.function<decltype(log)>("nvrtcGetProgramLog")),
      cubin_size(library.function<decltype(cubin_size)>("nvrtcGetCUBINSize")),
      cubin(library.function<decltype(cubin)>("nvrtcGetCUBIN")),
      error_string(library.function<decltype(error_string)>("nvrtcGetErrorString")) {
  // It opens its built-ins by bare name at the first compilation. In a wheel they lie beside it, where the loader does
  // not look; once loaded from there, the name is found. A library that has none (CUDA 11) is as good without.
  int major = 0, minor = 0;
  version(&major, &minor);
  const std::filesystem::path builtins = fmt::format("libnvrtc-builtins.so.{}.{}", major, minor);
  dlopen((std::filesystem::path(library.path()).parent_path() / builtins).c_str(), RTLD_NOW | RTLD_LOCAL);
}

const Nvrtc& nvrtc() {
  static const Nvrtc instance;  // a throwing constructor is tried again at the next call
  return instance;
}

void check(Result result, const char* what) {
  require(result == 0, "{} failed: {}", what, nvrtc().error_string(result));
}

int number_before(const std::string& text, const char* unit) {
  const size_t end = text.find(unit);
  if (end == std::string::npos || end == 0) return 0;
  size_t begin = end;
  while (begin > 0 && text[begin - 1] == ' ') --begin;
  const size_t stop = begin;
  while (begin > 0 && std::isdigit(static_cast<unsigned char>(text[begin - 1]))) --begin;
  return begin == stop ? 0 : std::atoi(text.substr(begin, stop - begin).c_str());
}

}  // namespace

bool nvrtc_available(std::string* reason) {
  try {
    nvrtc();
    return true;
  } catch (const Error& error) {
    if (reason) *reason = error.what();
    return false;
  }
}

std::string nvrtc_version() {
  int major = 0, minor = 0;
  check(nvrtc().version(&major, &minor), "nvrtcVersion");
  return fmt::format("{}.{}", major, minor);
}

std::string compile_options() { return "--std=c++17 --fmad=true --extra-device-vectorization --ptxas-options=-v"; }

std::vector<KernelResources> parse_resources(const std::string& log) {
  std::vector<KernelResources> kernels;
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    if (line.find("Compiling entry function") != std::string::npos) {
      const size_t open = line.find('\''), close = line.find('\'', open + 1);
      kernels.push_back({line.substr(open + 1, close - open - 1)});
    } else if (!kernels.empty() && line.find("spill stores") != std::string::npos) {
      kernels.back().stack_bytes = number_before(line, "bytes stack frame");
      kernels.back().spill_bytes = number_before(line, "bytes spill stores") + number_before(line, "bytes spill loads");
    } else if (!kernels.empty() && line.find("Used ") != std::string::npos) {
      kernels.back().registers = number_before(line, "registers");
      kernels.back().shared_bytes = number_before(line, "bytes smem");
    }
  }
  return kernels;
}

Cubin compile(const std::string& source, const std::string& name, int arch) {
  const Nvrtc& api = nvrtc();
  Program program = nullptr;
  check(api.create(&program, source.c_str(), (name + ".cu").c_str(), 0, nullptr, nullptr), "nvrtcCreateProgram");
  const std::unique_ptr<NvrtcProgram, void (*)(Program)> owner(program, [](Program p) { nvrtc().destroy(&p); });
  // Instructions that only one architecture has are compiled for its own name.
  const bool own = arch == 90 && source.find("wgmma.") != std::string::npos;
  std::vector<std::string> options{fmt::format("--gpu-architecture=sm_{}{}", arch, own ? "a" : "")};
  std::istringstream words(compile_options());
  for (std::string word; words >> word;) options.push_back(word);
  std::vector<const char*> pointers;
  for (const std::string& option : options) pointers.push_back(option.c_str());
  const auto start = std::chrono::steady_clock::now();
  const Result result = api.compile(program, static_cast<int>(pointers.size()), pointers.data());
  size_t size = 0;
  check(api.log_size(program, &size), "nvrtcGetProgramLogSize");
  std::string log(size, '\0');
  if (size > 0) check(api.log(program, log.data()), "nvrtcGetProgramLog");
  while (!log.empty() && log.back() == '\0') log.pop_back();
  require(result == 0, "NVRTC {} could not compile {} for sm_{} ({}). Its log:\n{}", nvrtc_version(), name, arch,
          api.error_string(result), log);
  Cubin cubin;
  cubin.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  check(api.cubin_size(program, &size), "nvrtcGetCUBINSize");
  cubin.code.resize(size);
  check(api.cubin(program, cubin.code.data()), "nvrtcGetCUBIN");
  cubin.kernels = parse_resources(log);
  return cubin;
}

}  // namespace clebsch::cuda
