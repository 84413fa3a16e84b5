// Compiling through the cache, and that launchers find what the table of kernels had compiled before. The compiler is
// the emulator's, so neither GPU nor NVRTC is needed.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include "core/errors.h"
#include "core/problem/named_problems.h"
#include "cuda/conv/tensor_product_conv.h"
#include "cuda/nodes/symmetric_contraction.h"
#include "cuda/plan/device_limits.h"
#include "cuda/runtime/kernel_compiler.h"
#include "cuda/runtime/kernel_table.h"

namespace clebsch::cuda {
namespace {

namespace fs = std::filesystem;

/// Every test has a cache folder of its own, which is the standard one meanwhile.
class KernelCache : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("clebsch-kernel-cache-" + std::to_string(::getpid()) + "-" +
                                           ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(folder_);
    if (const char* before = std::getenv("CLEBSCH_CACHE_DIR")) before_ = before;
    ::setenv("CLEBSCH_CACHE_DIR", folder_.c_str(), 1);
  }
  void TearDown() override {
    ::setenv("CLEBSCH_CACHE_DIR", before_.c_str(), 1);
    fs::remove_all(folder_);
  }

  std::map<std::string, fs::file_time_type> files() const {
    std::map<std::string, fs::file_time_type> found;
    for (const auto& entry : fs::directory_iterator(folder_)) found[entry.path().filename()] = entry.last_write_time();
    return found;
  }

  /// A kernel that no other test compiles.
  std::string source(const char* name) const {
    return std::string("extern \"C\" __global__ void fill(float* x) { x[threadIdx.x] = 1.0f; }\n// ") + name + "\n";
  }

  fs::path folder_;
  std::string before_;
};

TEST_F(KernelCache, DamagedFilesAreCompiledAgainAndReplaced) {
  const CubinCache cache(folder_.string());
  const Cubin first = cached_compile(cache, source("damaged"), "fill", 90);
  EXPECT_FALSE(first.cached);
  ASSERT_FALSE(first.file.empty());
  EXPECT_TRUE(cached_compile(cache, source("damaged"), "fill", 90).cached);
  std::string good;
  {
    std::ifstream file(first.file, std::ios::binary);
    good.assign(std::istreambuf_iterator<char>(file), {});
  }
  std::string flipped = good;
  flipped[good.size() / 2] = static_cast<char>(flipped[good.size() / 2] ^ 1);
  for (const std::string& bad : {good.substr(0, good.size() / 2), flipped, std::string()}) {
    std::ofstream(first.file, std::ios::binary | std::ios::trunc) << bad;
    EXPECT_FALSE(cached_compile(cache, source("damaged"), "fill", 90).cached);
    const Cubin again = cached_compile(cache, source("damaged"), "fill", 90);
    EXPECT_TRUE(again.cached);
    EXPECT_EQ(again.code.size(), first.code.size());
  }
  EXPECT_EQ(files().size(), 1u);
}

TEST_F(KernelCache, WithoutAFolderTheProcessKeepsThem) {
  const CubinCache none("/dev/null/cache");
  ASSERT_EQ(none.folder(), "");
  const Cubin first = cached_compile(none, source("kept"), "fill", 90);
  EXPECT_FALSE(first.cached);
  EXPECT_EQ(first.file, "");
  const Cubin second = cached_compile(none, source("kept"), "fill", 90);
  EXPECT_TRUE(second.cached);
  EXPECT_EQ(second.code, first.code);
  EXPECT_FALSE(cached_compile(none, source("kept"), "fill", 80).cached);
}

TEST_F(KernelCache, ThreadsThatAskAtOnceShareOneCompilation) {
  const CubinCache cache(folder_.string());
  std::vector<Cubin> made(6);
  in_threads(made.size(), 6, [&](size_t i) { made[i] = cached_compile(cache, source("shared"), "fill", 90); });
  int compiled = 0;
  for (const Cubin& cubin : made) {
    compiled += !cubin.cached;
    EXPECT_EQ(cubin.code, made[0].code);
  }
  EXPECT_EQ(compiled, 1);
}

TEST_F(KernelCache, AFailureIsToldToAllAndNotKept) {
  const CubinCache cache(folder_.string());
  std::vector<std::string> messages(3);
  in_threads(messages.size(), 3, [&](size_t i) {
    try {
      cached_compile(cache, "extern \"C\" __global__ void broken() { undeclared_name = 1; }", "broken", 90);
    } catch (const Error& error) {
      messages[i] = error.what();
    }
  });
  for (const std::string& message : messages) EXPECT_NE(message.find("undeclared_name"), std::string::npos) << message;
  EXPECT_TRUE(files().empty());
}

TEST_F(KernelCache, LaunchersFindWhatTheTableCompiled) {
  DeviceLimits limits = limits_of_architecture(device_limits(current_device()).arch);
  limits.multiprocessors = 1000;  // of another device of the architecture
  const std::string text = named_problem("test-one-channel").problem;
  const std::string symmetric = "symmetric in=3x0e out=3x0e terms=0,0.0";
  const std::vector<OpCall> calls{{"tensor_product_conv", text, Scalar::f64, {}, true},
                                  {"tensor_product_conv_backward", text, Scalar::f64, {true, true, false}, true},
                                  {"symmetric_contraction", symmetric, Scalar::f64, {}, true},
                                  {"symmetric_contraction_backward", symmetric, Scalar::f64, {true, false}, true}};
  const auto results = compile_jobs(kernel_jobs(calls, limits), CubinCache::standard());
  ASSERT_NO_THROW(require_compiled(results));
  for (const KernelResult& result : results) {
    for (const CompiledPart& part : result.parts) EXPECT_NE(part.cubin.file, "") << result.label;
  }
  const auto before = files();
  EXPECT_EQ(before.size(), 6u);  // four kernels and a helper of each op

  const auto problem = cached_problem(text);
  const auto conv = TensorProductConv::make(problem, Scalar::f64);
  ConvOperands operands;
  std::vector<double> x(static_cast<size_t>(problem->in1.dim()), 1.0), out(static_cast<size_t>(problem->out.dim())),
      grad = x;
  const int32_t row_ptr[] = {0, 0}, col_ptr[] = {0, 0};
  operands.x = x.data();
  operands.row_ptr = row_ptr;
  operands.col_ptr = col_ptr;
  operands.graph_rows = operands.nodes = 1;
  conv->forward(operands, 1, out.data(), nullptr, nullptr);
  conv->backward(operands, {true, true, false, true}, out.data(), grad.data(), nullptr, nullptr, nullptr, nullptr);
  EXPECT_EQ(grad[0], 0.0);

  const auto product = SymmetricContraction::make(cached_symmetric_problem(symmetric), Scalar::f64);
  SymmetricOperands atoms;
  const std::vector<double> features(3, 2.0), coefficients(6, 1.0);
  const int32_t type = 0;
  atoms.x = features.data();
  atoms.coefficients = coefficients.data();
  atoms.types = &type;
  atoms.nodes = atoms.type_count = 1;
  std::vector<double> sums(3), gradient(3);
  std::vector<char> scratch(static_cast<size_t>(product->workspace(SymmetricPass::forward, atoms) +
                                                product->workspace(SymmetricPass::backward, atoms)));
  product->forward(atoms, sums.data(), scratch.data(), nullptr);
  product->backward(atoms, sums.data(), gradient.data(), scratch.data(), nullptr);
  EXPECT_EQ(sums[0], 6.0);

  EXPECT_EQ(files(), before);  // nothing was compiled, nothing written again
}

}  // namespace
}  // namespace clebsch::cuda
