// The functions of NVRTC that src/cuda/runtime/nvrtc.cpp looks up: a source becomes a shared library by the host's
// compiler.
#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <regex>
#include <string>

#include "module_image.h"

namespace {

struct Program {
  std::string source, log, image;
};

std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// Inline assembly: the named barrier, asynchronous copies and tensor cores are emulated, hints to the cache and to the
/// optimiser are left out. Then a wrapper for every kernel.
std::string for_the_host(const std::string& source) {
  static const std::regex barrier(
      "asm volatile\\(\"barrier\\.sync %0, (\\d+);\" ::\"r\"\\(([^\"]*)\\) : \"memory\"\\);");
  static const std::regex copy("asm volatile\\(\"cp\\.async\\.ca[^\"]*\"[^;]*;");
  static const std::regex group("asm volatile\\(\"cp\\.async\\.commit_group;\"[^;]*;");
  static const std::regex await("asm volatile\\(\"cp\\.async\\.wait_group (\\d+);\"[^;]*;");
  static const std::regex multiply(
      "asm volatile\\(\"mma\\.sync\\.aligned\\.m16n8k8\\.row\\.col\\.f32\\.tf32\\.tf32\\.f32 [^;]*;\"[^;]*;");
  static const std::regex assembly("asm volatile\\([^;]*(;\\\")?[^;]*\\);");
  static const std::regex kernel("__global__ void\\s+(__launch_bounds__\\([^)]*\\)\\s*)?(\\w+)\\(");
  std::string text = std::regex_replace(source, barrier, "emulated_meet_some($2, $1, __LINE__);");
  text = std::regex_replace(text, copy, "emulated::copy_later(to, from, sizeof(real));");
  text = std::regex_replace(text, group, "emulated::end_group();");
  text = std::regex_replace(text, await, "emulated::await_groups($1);");
  text = std::regex_replace(text, multiply, "emulated::multiply_tf32(c, a, b, __LINE__);");
  text = std::regex_replace(text, assembly, ";");
  std::string wrappers;
  for (std::sregex_iterator match(text.begin(), text.end(), kernel), end; match != end; ++match) {
    const std::string name = (*match)[2];
    wrappers += "extern \"C\" void emulated_call_" + name + "(void** a) { emulated::call(" + name + ", a); }\n";
  }
  return "#include \"" EMULATOR_HEADER "\"\n#line 1\n" + text + "\n" + wrappers;
}

/// A program linked with this library uses it as its compiler too, and keeps what it compiles in the build folder.
const bool chosen = [] {
  Dl_info here;
  if (dladdr(reinterpret_cast<void*>(for_the_host), &here)) setenv("CLEBSCH_NVRTC", here.dli_fname, 1);
  return setenv("CLEBSCH_CACHE_DIR", EMULATOR_CACHE, 0) == 0;
}();

}  // namespace

extern "C" {

int nvrtcVersion(int* major, int* minor) {
  *major = chosen ? 13 : 0;
  // The cache of compiled kernels looks at the version: another header, other kernels.
  *minor = static_cast<int>(std::hash<std::string>{}(contents(EMULATOR_HEADER)) % 1000000);
  return 0;
}

int nvrtcCreateProgram(void** program, const char* source, const char*, int, const char* const*, const char* const*) {
  *program = new Program{source, "", ""};
  return 0;
}

int nvrtcDestroyProgram(void** program) {
  delete static_cast<Program*>(*program);
  *program = nullptr;
  return 0;
}

int nvrtcCompileProgram(void* handle, int, const char* const*) {
  auto& program = *static_cast<Program*>(handle);
  char folder_name[] = "/tmp/clebsch-emulated-XXXXXX";
  if (!mkdtemp(folder_name)) return 6;
  const std::filesystem::path folder = folder_name;
  std::ofstream(folder / "kernel.cpp") << for_the_host(program.source);
  // Contraction off: the result does not depend on what this compiler fuses.
  const std::string command = "'" EMULATOR_COMPILER "' -std=gnu++17 -O1 -ffp-contract=off -w -fPIC -shared -o '" +
                              (folder / "kernel.so").string() + "' '" + (folder / "kernel.cpp").string() + "' 2>'" +
                              (folder / "log").string() + "'";
  const int status = std::system(command.c_str());
  program.log = contents(folder / "log");
  const std::string library = contents(folder / "kernel.so");
  std::filesystem::remove_all(folder);
  if (status != 0 || library.empty()) return 6;
  clebsch::emulator::ImageHead head{};
  std::memcpy(head.magic, clebsch::emulator::kImageMagic, sizeof(head.magic));
  head.size = library.size();
  program.image.assign(reinterpret_cast<const char*>(&head), sizeof(head));
  program.image += library;
  return 0;
}

int nvrtcGetProgramLogSize(void* program, size_t* size) {
  return *size = static_cast<Program*>(program)->log.size() + 1, 0;
}
int nvrtcGetProgramLog(void* program, char* log) {
  return std::strcpy(log, static_cast<Program*>(program)->log.c_str()), 0;
}
int nvrtcGetCUBINSize(void* program, size_t* size) { return *size = static_cast<Program*>(program)->image.size(), 0; }
int nvrtcGetCUBIN(void* program, char* code) {
  const std::string& image = static_cast<Program*>(program)->image;
  return std::memcpy(code, image.data(), image.size()), 0;
}
const char* nvrtcGetErrorString(int result) { return result == 0 ? "no error" : "the host's compiler failed"; }

}  // extern "C"
