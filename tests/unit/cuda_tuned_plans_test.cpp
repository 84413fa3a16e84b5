// The files of measured plans: found again by their whole key, and ignored with a message when anything is wrong.
#include "cuda/runtime/tuned_plans.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

namespace clebsch::cuda {
namespace {

class TunedPlansTest : public ::testing::Test {
 protected:
  TunedPlansTest() {
    std::string name = (std::filesystem::temp_directory_path() / "clebsch-plans-XXXXXX").string();
    folder = ::mkdtemp(name.data());
  }
  ~TunedPlansTest() override { std::filesystem::remove_all(folder); }

  TunedPlans plans() const { return TunedPlans(CubinCache(folder)); }
  std::string text() const {
    std::ifstream file(plans().path(key), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  void write(const std::string& bytes) const { std::ofstream(plans().path(key), std::ios::binary) << bytes; }

  std::string folder;
  PlanKey key{"NVIDIA H200", 90, "1.0", "CLEBSCH_CUDA_INTERACTION", "float", "conv in1=32x0e in2=1x0e out=32x0e"};
};

TEST_F(TunedPlansTest, AreFoundAgain) {
  EXPECT_FALSE(plans().load(key).plan);
  EXPECT_EQ(plans().load(key).message, "");
  for (const std::string plan : {"blocks=2,horner=0", "", "lanes=0"}) {
    EXPECT_EQ(plans().store(key, plan), "");
    EXPECT_EQ(plans().load(key).plan, plan);
    EXPECT_EQ(plans().load(key).message, "");
  }
}

TEST_F(TunedPlansTest, HoldForTheirWholeKeyAlone) {
  ASSERT_EQ(plans().store(key, "blocks=2"), "");
  const std::function<void(PlanKey&)> changes[] = {
      [](PlanKey& k) { k.device = "NVIDIA H100"; }, [](PlanKey& k) { k.arch = 100; },
      [](PlanKey& k) { k.version = "1.1"; },        [](PlanKey& k) { k.option = "CLEBSCH_CUDA_SCHEDULE"; },
      [](PlanKey& k) { k.scalar = "double"; },      [](PlanKey& k) { k.problem += " more"; }};
  for (const auto& change : changes) {
    PlanKey other = key;
    change(other);
    EXPECT_FALSE(plans().load(other).plan);
    // Even where two keys had one file name.
    std::filesystem::copy_file(plans().path(key), plans().path(other));
    EXPECT_FALSE(plans().load(other).plan);
    EXPECT_NE(plans().load(other).message.find("other kernels"), std::string::npos) << plans().load(other).message;
  }
}

TEST_F(TunedPlansTest, DamagedFilesAreIgnoredWithAMessage) {
  ASSERT_EQ(plans().store(key, "blocks=2"), "");
  const std::string good = text();
  for (size_t length = 0; length < good.size(); length += 7) {
    write(good.substr(0, length));
    EXPECT_FALSE(plans().load(key).plan) << length;
    EXPECT_NE(plans().load(key).message.find("ignored"), std::string::npos) << length;
  }
  for (size_t at = 0; at < good.size(); at += 5) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 4);
    write(bad);
    EXPECT_FALSE(plans().load(key).plan) << at;
    EXPECT_NE(plans().load(key).message, "") << at;
  }
  write(std::string(3 << 20, 'x'));
  EXPECT_NE(plans().load(key).message, "");
  write(good);
  EXPECT_EQ(plans().load(key).plan, "blocks=2");
}

TEST_F(TunedPlansTest, TextsThatAreNoPlansAreNeitherKeptNorUsed) {
  EXPECT_NE(plans().store(key, "blokcs=2").find("blokcs"), std::string::npos);
  EXPECT_NE(plans().store(key, "blocks=2\n"), "");
  EXPECT_FALSE(std::filesystem::exists(plans().path(key)));
}

TEST_F(TunedPlansTest, WithoutAFolderNothingIsKeptAndNothingFails) {
  const TunedPlans none{CubinCache("")};
  EXPECT_EQ(none.path(key), "");
  EXPECT_NE(none.store(key, "blocks=2"), "");
  EXPECT_FALSE(none.load(key).plan);
}

TEST_F(TunedPlansTest, AFolderInTheFilesPlaceIsIgnored) {
  std::filesystem::create_directory(plans().path(key));
  EXPECT_FALSE(plans().load(key).plan);
  EXPECT_NE(plans().store(key, "blocks=2"), "");
}

}  // namespace
}  // namespace clebsch::cuda
