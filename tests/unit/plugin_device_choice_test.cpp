// Which GPU each rank takes: tables of what ranks see, and what follows.
#include <gtest/gtest.h>

#include <cstdlib>

#include "comm/device_choice.h"

namespace clebsch_lammps {
namespace {

using Devices = std::vector<std::string>;

DeviceReport on(int node, std::vector<std::string> gpus, int place = -1) {
  DeviceReport report;
  report.node = node;
  report.host = "n" + std::to_string(node);
  report.place = place;
  report.gpus.ids = std::move(gpus);
  if (report.gpus.ids.empty()) report.gpus.problem = "device cuda: the NVIDIA driver sees no device";
  return report;
}

DeviceReport broken(int node) {
  DeviceReport report = on(node, {});
  report.gpus.problem = "device cuda: the GPUs do not start: uncorrectable ECC error";
  report.gpus.broken = true;
  return report;
}

TEST(DeviceChoice, RanksOfANodeTakeItsGpusInTurn) {
  const auto a = [](int place) { return on(0, {"a0", "a1"}, place); };
  const auto b = [](int place) { return on(1, {"b0", "b1"}, place); };
  const DeviceChoices block = choose_devices("cuda", {a(0), a(1), b(0), b(1)});
  EXPECT_EQ(block.devices, (Devices{"cuda:0", "cuda:1", "cuda:0", "cuda:1"}));
  EXPECT_EQ(block.warning + block.error, "");
  const DeviceChoices cyclic = choose_devices("auto", {a(0), b(0), a(1), b(1)});
  EXPECT_EQ(cyclic.devices, (Devices{"auto:0", "auto:0", "auto:1", "auto:1"}));
  EXPECT_EQ(cyclic.warning + cyclic.error, "");
  EXPECT_EQ(choose_devices("cuda", {a(-1), b(-1), a(-1), b(-1)}).devices,
            (Devices{"cuda:0", "cuda:0", "cuda:1", "cuda:1"}));
}

TEST(DeviceChoice, WhoSharesAGpuIsToldByIdentity) {
  // CUDA_VISIBLE_DEVICES shows each rank one GPU of its own: all are cuda:0.
  const DeviceChoices own = choose_devices("cuda", {on(0, {"a"}), on(0, {"b"}), on(0, {"c"})});
  EXPECT_EQ(own.devices, (Devices{"cuda:0", "cuda:0", "cuda:0"}));
  EXPECT_EQ(own.warning, "");
  const DeviceChoices shared = choose_devices("cuda", {on(0, {"a"}), on(0, {"a"}), on(1, {"b"})});
  EXPECT_NE(shared.warning.find("2 ranks share a GPU (a of n0); one rank a GPU is usually faster"), std::string::npos)
      << shared.warning;
  // The same GPUs in another order.
  const DeviceChoices turned = choose_devices("cuda", {on(0, {"a", "b"}, 0), on(0, {"b", "a"}, 1)});
  EXPECT_EQ(turned.devices, (Devices{"cuda:0", "cuda:0"}));
  EXPECT_EQ(turned.warning, "");
}

TEST(DeviceChoice, MoreRanksThanGpus) {
  std::vector<DeviceReport> reports;
  for (int place = 0; place < 6; ++place) reports.push_back(on(0, {"a", "b"}, place));
  const DeviceChoices choices = choose_devices("cuda", reports);
  EXPECT_EQ(choices.devices, (Devices{"cuda:0", "cuda:1", "cuda:0", "cuda:1", "cuda:0", "cuda:1"}));
  EXPECT_NE(choices.warning.find("3 ranks share a GPU (a"), std::string::npos) << choices.warning;
}

TEST(DeviceChoice, PartitionsThatKnowNothingOfEachOtherTakeDifferentGpus) {
  const std::vector<std::string> gpus{"a", "b", "c", "d"};
  // Two nodes filled in turn, partitions of two ranks: on each node one rank of each.
  std::vector<std::string> taken;
  for (int partition = 0; partition < 4; ++partition) {
    const DeviceChoices choices =
        choose_devices("cuda", {on(0, gpus, partition), on(1, {"e", "f", "g", "h"}, partition)});
    EXPECT_EQ(choices.devices[0], choices.devices[1]);
    taken.push_back(choices.devices[0]);
  }
  EXPECT_EQ(taken, (Devices{"cuda:0", "cuda:1", "cuda:2", "cuda:3"}));
  EXPECT_EQ(choose_devices("cuda", {on(0, gpus, 2), on(0, gpus, 3)}).devices, (Devices{"cuda:2", "cuda:3"}));
  // A world of every fourth rank of a node takes GPUs of its own while there are free ones.
  const DeviceChoices sparse = choose_devices("cuda", {on(0, gpus, 1), on(0, gpus, 5)});
  EXPECT_EQ(sparse.devices, (Devices{"cuda:1", "cuda:2"}));
  EXPECT_EQ(sparse.warning, "");
}

TEST(DeviceChoice, PlacesOfAnOuterLauncherAreNotTrusted) {
  const std::vector<std::string> gpus{"a", "b"};
  EXPECT_EQ(choose_devices("cuda", {on(0, gpus, 1), on(0, gpus, 1)}).devices, (Devices{"cuda:0", "cuda:1"}));
  EXPECT_EQ(choose_devices("cuda", {on(0, gpus, 1), on(0, gpus, -1)}).devices, (Devices{"cuda:0", "cuda:1"}));
}

TEST(DeviceChoice, GpusThatTheHostProgramChose) {
  std::vector<DeviceReport> reports{on(0, {"a", "b"}, 0), on(0, {"a", "b"}, 1)};
  reports[0].taken = 1;
  reports[1].taken = 1;
  const DeviceChoices choices = choose_devices("auto", reports);
  EXPECT_EQ(choices.devices, (Devices{"auto:1", "auto:1"}));
  EXPECT_NE(choices.warning.find("2 ranks share a GPU (b"), std::string::npos) << choices.warning;
  reports[1].taken = 2;
  EXPECT_EQ(choose_devices("auto", reports).error, "expected GPU 2 for rank 1 (n0), got 2 visible GPU(s)");
}

TEST(DeviceChoice, WithoutGpusAutoIsTheCpu) {
  const DeviceChoices none = choose_devices("auto", {on(0, {}), on(0, {})});
  EXPECT_EQ(none.devices, (Devices{"cpu", "cpu"}));
  EXPECT_EQ(none.warning + none.error, "");
  EXPECT_EQ(choose_devices("cuda", {on(0, {}), on(0, {})}).error,
            "rank 0 (n0) sees no GPU (1 more rank likewise): device cuda: the NVIDIA driver sees no device");
}

TEST(DeviceChoice, OneRankWithoutAGpuIsNamed) {
  const std::vector<DeviceReport> reports{on(0, {"a"}), on(1, {}), on(2, {"c"})};
  const DeviceChoices choices = choose_devices("auto", reports);
  EXPECT_EQ(choices.devices, (Devices{"cpu", "cpu", "cpu"}));
  EXPECT_NE(choices.warning.find("all ranks compute on the CPU, because rank 1 (n1) sees no GPU: device cuda: the "
                                 "NVIDIA driver sees no device"),
            std::string::npos)
      << choices.warning;
  EXPECT_EQ(choices.error, "");
  EXPECT_NE(choose_devices("cuda", reports).error.find("rank 1 (n1) sees no GPU"), std::string::npos);
}

TEST(DeviceChoice, AGpuThatDoesNotStartIsAnError) {
  for (const char* wanted : {"auto", "cuda"}) {
    const DeviceChoices choices = choose_devices(wanted, {on(0, {"a"}), broken(1), on(2, {}), broken(3)});
    EXPECT_NE(choices.error.find("rank 1 (n1) (1 more rank likewise): device cuda: the GPUs do not start: "
                                 "uncorrectable ECC error"),
              std::string::npos)
        << choices.error;
  }
}

TEST(DeviceChoice, TheLaunchersNumber) {
  for (const char* name :
       {"OMPI_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PMI_LOCAL_RANK",
        "PALS_LOCAL_RANKID", "MPT_LRANK", "JSM_NAMESPACE_LOCAL_RANK", "FLUX_TASK_LOCAL_ID", "SLURM_LOCALID"})
    ::unsetenv(name);
  EXPECT_EQ(place_by_launcher(), -1);
  ::setenv("SLURM_LOCALID", "3", 1);
  EXPECT_EQ(place_by_launcher(), 3);
  ::setenv("OMPI_COMM_WORLD_LOCAL_RANK", "5", 1);
  EXPECT_EQ(place_by_launcher(), 5);
  for (const char* nonsense : {"", "x", "-2", "4x", "99999999999999999999"}) {
    ::setenv("OMPI_COMM_WORLD_LOCAL_RANK", nonsense, 1);
    EXPECT_EQ(place_by_launcher(), 3) << nonsense;
  }
}

}  // namespace
}  // namespace clebsch_lammps
