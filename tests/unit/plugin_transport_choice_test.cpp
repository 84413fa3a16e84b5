// Which transport ranks take, and what they say about it.
#include <gtest/gtest.h>

#include "comm/transport_choice.h"

namespace clebsch_lammps {
namespace {

TransportReport gpu(const std::string& id, int version = 22705) { return {true, id, "", version}; }

TEST(TransportChoice, ModelsOnTheCpu) {
  for (const TransportMode mode : {TransportMode::automatic, TransportMode::host}) {
    const TransportChoice choice = choose_transport(mode, {{}, {}});
    EXPECT_EQ(choice.transport, Transport::host);
    EXPECT_EQ(choice.reason + choice.error, "");
  }
  EXPECT_EQ(choose_transport(TransportMode::nccl, {{}}).error,
            "expected models on GPUs for transport nccl, got models on the CPU");
  EXPECT_EQ(choose_transport(TransportMode::aware, {{}}).error,
            "expected models on GPUs for transport aware, got models on the CPU");
}

TEST(TransportChoice, AGpuEach) {
  for (const TransportMode mode : {TransportMode::automatic, TransportMode::nccl}) {
    const TransportChoice choice = choose_transport(mode, {gpu("GPU-a"), gpu("GPU-b"), gpu("GPU-c")});
    EXPECT_EQ(choice.transport, Transport::nccl);
    EXPECT_EQ(choice.reason + choice.error, "");
  }
  EXPECT_EQ(choose_transport(TransportMode::host, {gpu("GPU-a"), gpu("GPU-b")}).transport, Transport::pinned);
  EXPECT_EQ(choose_transport(TransportMode::aware, {gpu("GPU-a"), gpu("GPU-a")}).transport, Transport::aware);
}

TEST(TransportChoice, WhyNotNccl) {
  const std::string shared = "ranks 1 and 3 share GPU-b, and NCCL needs a GPU a rank";
  const std::vector<TransportReport> sharing = {gpu("GPU-a"), gpu("GPU-b"), gpu("GPU-c"), gpu("GPU-b")};
  const TransportChoice choice = choose_transport(TransportMode::automatic, sharing);
  EXPECT_EQ(choice.transport, Transport::pinned);
  EXPECT_EQ(choice.reason, shared);
  EXPECT_EQ(choice.error, "");
  EXPECT_EQ(choose_transport(TransportMode::nccl, sharing).error, "transport nccl: " + shared);

  std::vector<TransportReport> reports = {gpu("GPU-a"), gpu("GPU-b")};
  reports[1].nccl_problem = "libnccl not found";
  EXPECT_EQ(choose_transport(TransportMode::automatic, reports).reason, "rank 1: libnccl not found");
  EXPECT_EQ(choose_transport(TransportMode::automatic, {gpu("GPU-a"), gpu("GPU-b", 22803)}).reason,
            "rank 0 has NCCL 2.27.5, rank 1 2.28.3");
}

TEST(TransportChoice, SomeOnTheCpu) {
  EXPECT_EQ(choose_transport(TransportMode::automatic, {gpu("GPU-a"), {}}).error,
            "expected the models of all ranks on GPUs or of none, got 1 of 2 on GPUs (rank 1 is on the CPU)");
}

TEST(TransportChoice, Names) {
  EXPECT_EQ(described(Transport::nccl, 22705), "NCCL 2.27.5");
  EXPECT_EQ(described(Transport::host, 0), "MPI on the host");
}

}  // namespace
}  // namespace clebsch_lammps
