// The on-disk cache of compiled kernels: damage, strange folders, several processes. Needs neither GPU nor NVRTC.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>

#include "cuda/runtime/cubin_cache.h"

namespace clebsch::cuda {
namespace {

namespace fs = std::filesystem;

class CubinCacheTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("clebsch-cache-test-" + std::to_string(::getpid()) + "-" +
                                           ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  static Cubin sample(size_t size = 5000) {
    Cubin cubin;
    for (size_t i = 0; i < size; ++i) cubin.code.push_back(static_cast<char>(i * 31));
    cubin.kernels = {{"conv_forward", 96, 8192, 0, 0}, {"sum_parts", 32, 0, 16, 8}};
    return cubin;
  }

  fs::path folder_;
  const std::string key_ = CubinCache::key("__global__ void conv_forward() {}\n", 90, "13.0");
};

TEST_F(CubinCacheTest, GivesBackWhatWasStored) {
  const CubinCache cache(folder_.string());
  EXPECT_FALSE(cache.load("conv_forward", key_));
  ASSERT_TRUE(cache.store("conv_forward", key_, sample()));
  const auto found = CubinCache(folder_.string()).load("conv_forward", key_);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->code, sample().code);
  ASSERT_EQ(found->kernels.size(), 2u);
  EXPECT_EQ(found->kernels[1].name, "sum_parts");
  EXPECT_EQ(found->kernels[1].spill_bytes, 8);
  struct stat info {};
  ASSERT_EQ(::stat(folder_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
}

TEST_F(CubinCacheTest, AFileThatOthersMayWriteIsAMiss) {
  const mode_t before = ::umask(0002);
  const CubinCache cache(folder_.string());
  ASSERT_TRUE(cache.store("conv_forward", key_, sample()));
  ::umask(before);
  EXPECT_TRUE(cache.load("conv_forward", key_));
  ::chmod(cache.path("conv_forward", key_).c_str(), 0664);
  EXPECT_FALSE(cache.load("conv_forward", key_));
}

TEST_F(CubinCacheTest, AnotherKeyIsAMiss) {
  const CubinCache cache(folder_.string());
  ASSERT_TRUE(cache.store("conv_forward", key_, sample()));
  for (const auto& [source, arch, version] : {std::tuple("__global__ void conv_forward() { }\n", 90, "13.0"),
                                              std::tuple("__global__ void conv_forward() {}\n", 80, "13.0"),
                                              std::tuple("__global__ void conv_forward() {}\n", 90, "12.8")}) {
    const std::string other = CubinCache::key(source, arch, version);
    EXPECT_FALSE(cache.load("conv_forward", other));
    // Even when the file name collides, the stored key decides.
    fs::copy_file(cache.path("conv_forward", key_), cache.path("conv_forward", other));
    EXPECT_FALSE(cache.load("conv_forward", other));
  }
}

TEST_F(CubinCacheTest, DamageIsAMiss) {
  const CubinCache cache(folder_.string());
  ASSERT_TRUE(cache.store("conv_forward", key_, sample()));
  const std::string path = cache.path("conv_forward", key_);
  std::string good;
  {
    std::ifstream file(path, std::ios::binary);
    good.assign(std::istreambuf_iterator<char>(file), {});
  }
  auto write = [&](const std::string& bytes) { std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes; };
  for (size_t at = 0; at < good.size(); at += 97) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x20);
    write(bad);
    EXPECT_FALSE(cache.load("conv_forward", key_)) << "byte " << at;
  }
  for (size_t length : {size_t{0}, size_t{5}, good.size() / 2, good.size() - 1}) {
    write(good.substr(0, length));
    EXPECT_FALSE(cache.load("conv_forward", key_)) << "length " << length;
  }
  write("clebsch-cubin-1 1 18446744073709551615 18446744073709551615 2\nxx");
  EXPECT_FALSE(cache.load("conv_forward", key_));
  ASSERT_TRUE(cache.store("conv_forward", key_, sample()));  // and is repaired by the next store
  EXPECT_TRUE(cache.load("conv_forward", key_));
}

TEST_F(CubinCacheTest, FoldersThatCannotBeUsedAreNoCache) {
  for (const std::string& folder : {std::string(), std::string("/dev/null/cache"), std::string("/proc/clebsch")}) {
    const CubinCache cache(folder);
    EXPECT_EQ(cache.folder(), "") << folder;
    EXPECT_NE(cache.problem(), "") << folder;
    EXPECT_FALSE(cache.store("conv_forward", key_, sample()));
    EXPECT_FALSE(cache.load("conv_forward", key_));
  }
  // Others could plant code in it.
  fs::create_directories(folder_);
  ::chmod(folder_.c_str(), 0777);
  EXPECT_EQ(CubinCache(folder_.string()).folder(), "");
  EXPECT_NE(CubinCache(folder_.string()).problem().find("chmod go-w"), std::string::npos);
}

/// Runs `good` in a process of its own, as nobody when this one is root: root writes anywhere.
bool holds_for_a_user(const fs::path& folder, const std::function<bool()>& good) {
  constexpr uid_t kNobody = 65534;
  if (::geteuid() == 0 && ::chown(folder.c_str(), kNobody, kNobody) != 0) return false;
  const pid_t child = ::fork();
  if (child == 0) {
    const bool plain = ::geteuid() != 0 || ::setuid(kNobody) == 0;
    ::_exit(plain && good() ? 0 : 1);
  }
  int status = 0;
  return ::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST_F(CubinCacheTest, ReadOnlyFolderStillServes) {
  ASSERT_TRUE(CubinCache(folder_.string()).store("conv_forward", key_, sample()));
  ASSERT_EQ(CubinCache(folder_.string()).problem(), "");
  ::chmod(folder_.c_str(), 0500);
  EXPECT_TRUE(holds_for_a_user(folder_, [&] {
    const CubinCache cache(folder_.string());
    const std::string problem = cache.problem();
    return cache.load("conv_forward", key_) && !cache.store("other", key_, sample()) &&
           problem.find("cannot be written") != std::string::npos &&
           problem.find(folder_.string()) != std::string::npos;
  }));
  ::chmod(folder_.c_str(), 0700);
}

TEST_F(CubinCacheTest, AFullDiskLeavesNothing) {
  const CubinCache cache(folder_.string());
  ASSERT_TRUE(cache.store("conv_forward", key_, sample()));
  EXPECT_EQ(cache.refusal(), "");
  EXPECT_TRUE(holds_for_a_user(folder_, [&] {
    // A limit on the size of files acts as a full disk does, in the middle of a file.
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{2000, 2000};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return false;
    const CubinCache full(folder_.string());
    const bool refused = !full.store("other", key_, sample()) && !full.store("conv_forward", key_, sample(6000));
    return refused && full.problem().empty() && full.refusal().find(folder_.string()) != std::string::npos &&
           full.refusal().find("File too large") != std::string::npos &&
           full.load("conv_forward", key_)->code.size() == 5000;
  }));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
}

TEST_F(CubinCacheTest, WhatKilledWritersLeaveIsRemovedLater) {
  fs::create_directories(folder_);
  ::chmod(folder_.c_str(), 0700);
  const fs::path old = folder_ / "conv_forward-0123.cubin.aBcDeF", young = folder_ / "conv_forward-0123.cubin.AbCdEf",
                 other = folder_ / "notes.aBcDeF";
  for (const fs::path& path : {old, young, other}) std::ofstream(path) << "half";
  for (const fs::path& path : {old, other})
    fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(2));
  ASSERT_TRUE(CubinCache(folder_.string()).store("conv_forward", key_, sample()));
  EXPECT_FALSE(fs::exists(old));
  EXPECT_TRUE(fs::exists(young) && fs::exists(other));
}

TEST_F(CubinCacheTest, MissingFoldersAreMade) {
  const fs::path deep = folder_ / "a" / "b" / "cache";
  const CubinCache cache(deep.string());
  EXPECT_EQ(cache.folder(), deep.string());
  EXPECT_TRUE(cache.store("conv_forward", key_, sample()));
  EXPECT_TRUE(cache.load("conv_forward", key_));
  // And one that disappears while it is in use is a miss, not an error.
  fs::remove_all(folder_);
  EXPECT_FALSE(cache.load("conv_forward", key_));
  EXPECT_FALSE(cache.store("conv_forward", key_, sample()));
  EXPECT_NE(cache.problem(), "");
}

TEST_F(CubinCacheTest, StandardFolder) {
  struct Restore {
    explicit Restore(const char* variable) : name(variable) {
      if (const char* value = std::getenv(variable)) before = value;
      ::unsetenv(variable);
    }
    ~Restore() { before ? ::setenv(name, before->c_str(), 1) : ::unsetenv(name); }
    const char* name;
    std::optional<std::string> before;
  };
  const Restore given("CLEBSCH_CACHE_DIR"), base("XDG_CACHE_HOME"), home("HOME");
  EXPECT_EQ(CubinCache::standard().folder(), "");
  EXPECT_NE(CubinCache::standard().problem().find("HOME"), std::string::npos);
  ::setenv("HOME", (folder_ / "home").c_str(), 1);
  EXPECT_EQ(CubinCache::standard().folder(), (folder_ / "home/.cache/clebsch").string());
  ::setenv("XDG_CACHE_HOME", (folder_ / "xdg").c_str(), 1);
  EXPECT_EQ(CubinCache::standard().folder(), (folder_ / "xdg/clebsch").string());
  ::setenv("CLEBSCH_CACHE_DIR", (folder_ / "given").c_str(), 1);
  EXPECT_EQ(CubinCache::standard().folder(), (folder_ / "given").string());
  ::setenv("CLEBSCH_CACHE_DIR", "", 1);
  EXPECT_EQ(CubinCache::standard().folder(), "");
  EXPECT_NE(CubinCache::standard().problem(), "");
}

TEST_F(CubinCacheTest, ProcessesMayRace) {
  constexpr int kProcesses = 4, kRounds = 40;
  std::vector<pid_t> children;
  for (int p = 0; p < kProcesses; ++p) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const CubinCache cache(folder_.string());
      bool good = true;
      for (int round = 0; round < kRounds; ++round) {
        const auto found = cache.load("conv_forward", key_);
        good = good && (!found || found->code == sample(200000).code);
        good = good && cache.store("conv_forward", key_, sample(200000));
      }
      ::_exit(good ? 0 : 1);
    }
    children.push_back(child);
  }
  for (pid_t child : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  size_t files = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(folder_)) ++files;
  EXPECT_EQ(files, 1u);  // no temporary file is left
}

}  // namespace
}  // namespace clebsch::cuda
