// The functions of NVRTC that src/cuda/runtime/nvrtc.cpp looks up: a source becomes a shared library by the host's
// compiler.
#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "module_image.h"

namespace {

struct Program {
  std::string source, log, image;
};

std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// Inline assembly that generated kernels use, and what stands for it here: nothing for hints to cache and optimiser.
std::string without_assembly(std::string text) {
  static const std::vector<std::pair<std::regex, const char*>> known = [] {
    const auto statement = [](const char* begin) { return std::regex(std::string("asm volatile\\(\\s*\"") + begin); };
    return std::vector<std::pair<std::regex, const char*>>{
        {statement(R"(barrier\.sync %0, (\d+);" ::"r"\(([^"]*)\) : "memory"\);)"),
         "emulated_meet_some($2, $1, __LINE__);"},
        {statement(R"(bar\.sync %0, (\d+);" ::"r"\(([^"]*)\) : "memory"\);)"),
         "emulated_meet_named($2, $1, 1, __LINE__);"},
        {statement(R"(bar\.sync %0, %1;" ::"r"\(([^"]*)\), "n"\(([^"]*)\) : "memory"\);)"),
         "emulated_meet_named($1, $2, 1, __LINE__);"},
        {statement(R"(bar\.arrive %0, %1;" ::"r"\(([^"]*)\), "n"\(([^"]*)\) : "memory"\);)"),
         "emulated_meet_named($1, $2, 0, __LINE__);"},
        {statement(R"(bar\.arrive %0, (\d+);" ::"r"\(([^"]*)\) : "memory"\);)"),
         "emulated_meet_named($2, $1, 0, __LINE__);"},
        // Warpgroups: each warp's products with its own rows.
        {statement(R"(\{\\n\.reg \.pred p;\\nsetp\.ne\.b32 p, %\d+, 0;\\n"[\s\S]*?"n"\(kTurned\)\);)"),
         "emulated::multiply_group(d, a, b, more, kTurned, CLEBSCH_HALF[0] == 'b', __LINE__);"},
        {statement(R"(\{\\n\.reg \.pred p;\\nsetp\.gt\.s32 p, %\d+, 0;\\n"[\s\S]*?"r"\(more\)\);)"),
         "emulated::multiply_group(d, a, b, more, 3, CLEBSCH_HALF[0] == 'b', __LINE__);"},
        {statement(R"(\{\\n\.reg \.pred p;\\nsetp\.eq\.b32 p, 0, 0;\\n"[\s\S]*?"n"\(kTurned\)\);)"),
         "emulated::multiply_group(d, a, b, 1, kTurned ? 1 : 2, CLEBSCH_HALF[0] == 'b', __LINE__);"},
        {statement(R"(\{\.reg \.pred p; setp\.ne\.b32 p, %\d+, 0; wgmma[^"]*\.tf32\.tf32 [^"]*"[^;]*;)"),
         "emulated::multiply_group_tf32(d, a, b, more, __LINE__);"},
        {statement(R"(ld\.global\.L1::no_allocate\.v4\.f32 [^;]*;"[^;]*;)"), "std::memcpy(to, from, 16);"},
        {statement(R"(wgmma\.fence[^;]*;"[^;]*;)"), ";"},
        {statement(R"(wgmma\.commit_group[^;]*;"[^;]*;)"), "emulated::end_products();"},
        {statement(R"(wgmma\.wait_group[^;]*;" ::"n"\(([^)]*)\)[^;]*;)"), "emulated::await_products($1, __LINE__);"},
        {statement(R"(fence\.proxy\.async[^;]*;"[^;]*;)"), "emulated::fence_proxies();"},
        {statement(R"(setmaxnreg\.[^;]*;"[^;]*;)"), ";"},
        {statement(R"(mbarrier\.init\.[^;]*;"[^;]*;)"), "emulated_barrier_begin(barrier, arrivals);"},
        {statement(R"(mbarrier\.arrive\.shared[^;]*;"[^;]*;)"), "emulated_barrier_arrive(barrier, 0);"},
        {statement(R"(mbarrier\.arrive\.expect_tx\.[^;]*;"[^;]*;)"), "emulated_barrier_arrive(barrier, bytes);"},
        {statement(R"(cp\.async\.mbarrier\.arrive\.noinc\.[^;]*;"[^;]*;)"),
         "emulated::end_group(); emulated::await_groups(0); emulated_barrier_arrive(barrier, 0);"},
        {statement(R"(\{\\n\.reg \.pred p;\\nmbarrier\.try_wait[\s\S]*?"memory"\);)"),
         "emulated_barrier_wait(barrier, parity, __LINE__); done = 1;"},
        {statement(R"(bar\.sync (\d+), (\d+);"[^;]*;)"), "emulated_meet_named($1, $2, 1, __LINE__);"},
        {statement(R"(bar\.arrive (\d+), (\d+);"[^;]*;)"), "emulated_meet_named($1, $2, 0, __LINE__);"},
        {statement(R"(\{\\n\.reg \.pred p;\\nsetp\.ne\.s32 p, %0, 0;\\n@p mbarrier\.arrive[^;]*;[^;]*;)"),
         "if (where) emulated_barrier_arrive(barrier, 0);"},
        {statement(R"(\{\\n\.reg \.pred p;\\nsetp\.ne\.s32 p, %0, 0;\\n@p bar\.sync %1, (\d+);[^;]*;)"),
         "if (where) emulated_meet_named(barrier, $1, 1, __LINE__);"},
        {statement(R"(\{\\n\.reg \.pred p;\\nsetp\.ne\.s32 p, %0, 0;\\n@p st\.global\.v4\.b32[^;]*;[^;]*;)"),
         "if (where) std::memcpy(to, pairs, 16);"},
        {statement(R"(cp\.async\.bulk\.shared::cluster\.global\.mbarrier::complete_tx::bytes [^;]*;"[^;]*;)"),
         "emulated::copy_bulk(to, from, bytes, barrier, __LINE__);"},
        {statement(R"(cp\.async\.bulk\.global\.shared::cta\.bulk_group [^;]*;"[^;]*;)"),
         "emulated::store_bulk(to, from, bytes, __LINE__);"},
        {statement(R"(cp\.async\.bulk\.commit_group;"[^;]*;)"), "emulated::end_stores();"},
        {statement(R"(cp\.async\.bulk\.wait_group(\.read)? 0;"[^;]*;)"), "emulated::await_stores();"},
        {statement(R"(rsqrt\.approx\.ftz\.f32 %0, %1;"[^;]*;)"), "y = 1.0f / std::sqrt(x);"},
        {statement(R"(stmatrix\.sync\.aligned\.m8n8\.x4\.trans\.shared\.b16 [^;]*;"[\s\S]*?"memory"\);)"),
         "emulated::store_transposed(to, from, __LINE__);"},
        {statement(R"(stmatrix\.sync\.aligned\.m8n8\.x4\.shared\.b16 [^;]*;"[\s\S]*?"memory"\);)"),
         "emulated::store_matrices(to, from, __LINE__);"},
        {statement(R"(cp\.async\.c[ag]\.shared\.global \[%0\], \[%1\], (\d+);"[^;]*;)"),
         "emulated::copy_later(to, from, $1);"},
        {statement(R"(cp\.async\.ca\.shared\.global\.L2::cache_hint \[%0\], \[%1\], (\d+), %2;"[^;]*;)"),
         "emulated::copy_later(to, from, $1);"},
        {statement(R"(cp\.async\.c[ag]\.shared\.global \[%0\], \[%1\], %2, %3;"[^;]*;)"),
         "emulated::copy_or_clear_later(to, from, kBytes, bytes);"},
        {statement(R"(cp\.async\.commit_group;"[^;]*;)"), "emulated::end_group();"},
        // Kernels run one after the other here.
        {statement(R"(griddepcontrol\.(wait|launch_dependents);"[^;]*;)"), ""},
        {statement(R"(cp\.async\.wait_group %0;" ::"n"\(([^)]*)\)[^;]*;)"), "emulated::await_groups($1);"},
        {statement(R"(cp\.async\.wait_group (\d+);"[^;]*;)"), "emulated::await_groups($1);"},
        {statement(R"(mma\.sync\.aligned\.m16n8k8\.row\.col\.f32\.tf32\.tf32\.f32 [^;]*;"[^;]*;)"),
         "emulated::multiply_tf32(c, a, b, __LINE__);"},
        {statement(R"(mma\.sync\.aligned\.m8n8k4\.row\.col\.f64\.f64\.f64\.f64 [^;]*;"[^;]*;)"),
         "emulated::multiply_f64(c, a, b, __LINE__);"},
        {statement(R"(mma\.sync\.aligned\.m16n8k8\.row\.col\.f64\.f64\.f64\.f64 [^;]*;"[^;]*;)"),
         "emulated::multiply_large_f64(c, a, b, __LINE__);"},
        {statement(R"(mma\.sync\.aligned\.m16n8k16\.row\.col\.f32\.f16\.f16\.f32 [^;]*;"[^;]*;)"),
         "emulated::multiply_half(c, a, b, __LINE__);"},
        {statement(R"(mma\.sync\.aligned\.m16n8k16\.row\.col\.f32\.bf16\.bf16\.f32 [^;]*;"[^;]*;)"),
         "emulated::multiply_bfloat(c, a, b, __LINE__);"},
        {statement(R"(ld\.shared\.v4\.b32 [^;]*;"[^;]*;)"), "emulated::load_vector(&to, from, __LINE__);"},
        {statement(R"(ldmatrix\.sync\.aligned\.m8n8\.x4\.trans\.shared\.b16 [^;]*;"[^;]*;)"),
         "emulated::load_transposed(to, from, __LINE__);"},
        {statement(R"(ldmatrix\.sync\.aligned\.m8n8\.x4\.shared\.b16 [^;]*;"[^;]*;)"),
         "emulated::load_matrices(to, from, __LINE__);"},
        {statement(R"(cvt\.rn\.f16x2\.f32 [^;]*;"[^;]*;)"), "pair = float_to_half(x) | float_to_half(y) << 16;"},
        {statement(R"(cvt\.rn\.bf16x2\.f32 [^;]*;"[^;]*;)"), "pair = float_to_bfloat(x) | float_to_bfloat(y) << 16;"},
        {statement(R"(cvt\.f32\.f16 [^;]*;"[^;]*;)"), "value = half_to_float(bits);"},
        {statement(R"(mov\.u32 %0, %%laneid;"[^;]*;)"), "lane = emulated::lane();"},
        {statement(R"(mov\.u32 %0, %%tid\.x;"[^;]*;)"), "thread = threadIdx.x;"},
        {statement(R"(tanh\.approx\.f32 %0, %1;"[^;]*;)"), "y = std::tanh(x);"},
        {statement(R"(ex2\.approx\.ftz\.f32 %0, %1;"[^;]*;)"), "y = std::exp2(x);"},
        {statement(R"(rcp\.approx\.ftz\.f32 %0, %1;"[^;]*;)"), "y = 1.0f / x;"},
        {statement(R"(prmt\.b32 %0, %1, 0, %2;"[^;]*;)"), "word = emulated::permute(pair, selector);"},
        {statement(R"(prefetch\.global\.L2 \[%0\];"[^;]*;)"), ";"},
        {statement(R"(createpolicy\.fractional\.L2::evict_first\.b64 %0, 1\.0;"[^;]*;)"), ";"},
        {statement(R"(" : "[+=][rlfd]"[^;]*;)"), ";"},
    };
  }();
  // Dynamic shared memory is as large as a device has it.
  static const std::regex dynamic(R"(extern __shared__ (__align__\(\d+\) )?([^;\[]*) (\w+)\[\];)");
  text = std::regex_replace(
      text, dynamic, "__shared__ $1$2 $3[" + std::to_string(clebsch::emulator::kDynamicShared) + " / sizeof($2)];");
  for (const auto& [statement, meaning] : known) text = std::regex_replace(text, statement, meaning);
  return text;
}

/// "" or a message with the first inline assembly left in the text.
std::string unknown_assembly(const std::string& text) {
  static const std::regex assembly(R"(\b(asm|__asm|__asm__)\s*(volatile\s*)?\([^;]*;?[^;]*;?)");
  std::smatch match;
  if (!std::regex_search(text, match, assembly)) return "";
  const auto line = 1 + std::count(text.begin(), text.begin() + match.position(), '\n');
  return "line " + std::to_string(line) + ": the emulator does not know this inline assembly: " + match.str() +
         "\nWhat it knows stands in tests/unit/cuda_emulator/compiler.cpp.\n";
}

/// With calls before loads and stores, of which proxies.cpp hears.
constexpr const char* kWatched =
    " -fsanitize=kernel-address --param asan-instrumentation-with-call-threshold=0 --param asan-stack=0"
    " --param asan-globals=0";
/// Whether a source has copies or products of another proxy than ordinary loads and stores are.
bool is_watched(const std::string& source) {
  return source.find("cp.async.bulk") != std::string::npos || source.find("wgmma.mma_async") != std::string::npos;
}

/// The source without inline assembly, a wrapper for every kernel, and what a block begins with.
std::string for_the_host(const std::string& text, bool watched) {
  static const std::regex kernel("__global__ void\\s+(__launch_bounds__\\([^)]*\\)\\s*)?(\\w+)\\(");
  std::string wrappers =
      "extern \"C\" void emulated_begin_block(uint64_t seed) {"
      " emulated::begin_block(seed, __start_emulated_shared, __stop_emulated_shared, " +
      std::string(watched ? "true" : "false") + "); }\n";
  for (std::sregex_iterator match(text.begin(), text.end(), kernel), end; match != end; ++match) {
    const std::string name = (*match)[2];
    wrappers += "extern \"C\" void emulated_call_" + name + "(void** a) { emulated::call(" + name + ", a); }\n";
  }
  return "#include \"" EMULATOR_PRECOMPILED "\"\n#line 1\n" + text + "\n" + wrappers;
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
  // The cache of compiled kernels looks at the version: another header or flag, other kernels.
  *minor = static_cast<int>(std::hash<std::string>{}(contents(EMULATOR_HEADER) + EMULATOR_FLAGS + kWatched) % 1000000);
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
  const std::string text = without_assembly(program.source);
  program.log = unknown_assembly(text);
  if (!program.log.empty()) return 6;
  char folder_name[] = "/tmp/clebsch-emulated-XXXXXX";
  if (!mkdtemp(folder_name)) return 6;
  const std::filesystem::path folder = folder_name;
  const bool watched = is_watched(program.source);
  std::ofstream(folder / "kernel.cpp") << for_the_host(text, watched);
  const std::string command = "'" EMULATOR_COMPILER "' " EMULATOR_FLAGS + std::string(watched ? kWatched : "") +
                              " -shared -o '" + (folder / "kernel.so").string() + "' '" +
                              (folder / "kernel.cpp").string() + "' 2>'" + (folder / "log").string() + "'";
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
