#pragma once
// What the programs of transports.cpp share: the rank, its GPU, and features where a transport has them.
#include <dlfcn.h>
#include <mpi.h>

#include <cstdlib>
#include <stdexcept>
#include <string>

#include "comm/row_array.h"
#include "comm/transport.h"
#include "cuda/runtime/driver.h"
#include "model/gpu_memory.h"

inline int me = 0, ranks = 1;
constexpr int kLookMark = 40;  // a mark that no link uses here

/// Calls of cuMemAlloc and cuMemHostAlloc, where CUDA is emulated; else 0.
inline long long allocations() {
  const auto count = reinterpret_cast<long long (*)()>(dlsym(RTLD_DEFAULT, "emulated_allocations"));
  return count ? count() : 0;
}

inline bool emulated() { return dlsym(RTLD_DEFAULT, "emulated_allocations") != nullptr; }

inline int my_gpu() {
  if (emulated()) return 0;
  if (const char* given = std::getenv("CLEBSCH_TEST_GPU")) return std::atoi(given);
  MPI_Comm node;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, me, MPI_INFO_NULL, &node);
  int place = 0, gpus = 0;
  MPI_Comm_rank(node, &place);
  MPI_Comm_free(&node);
  for (;; ++gpus) {
    try {
      clebsch::cuda::device_uuid(gpus);
    } catch (const std::exception&) {
      break;
    }
  }
  return gpus > 0 ? place % gpus : 0;
}

inline std::string my_gpu_id(int gpu) {
  const bool shared = std::getenv("CLEBSCH_TEST_SHARED") != nullptr;
  if (emulated() && !shared) return "GPU-of-rank-" + std::to_string(me);
  std::string reason;
  if (!clebsch::cuda::driver_available(&reason)) throw std::runtime_error(reason);
  return clebsch::cuda::device_uuid(gpu);
}

/// Features where a transport has them, and a way to look at them.
class Features {
 public:
  Features(clebsch::RowMemory& memory, std::size_t bytes) : memory_(memory), array_(memory), bytes_(bytes) {
    array_.reserve(bytes);
    gpu_ = dynamic_cast<clebsch::GpuMemory*>(&memory);
    if (gpu_) pinned_ = static_cast<char*>(gpu_->allocate_pinned(bytes));
  }
  ~Features() {
    if (gpu_) gpu_->release_pinned(pinned_);
  }
  char* data() const { return array_.bytes(); }
  void set(const void* from) { memory_.upload(array_.bytes(), from, bytes_); }
  /// Waits for the stream.
  const char* get(void* stream) {
    if (!gpu_ || bytes_ == 0) return array_.bytes();
    gpu_->to_host(pinned_, array_.bytes(), bytes_, stream);
    gpu_->mark(kLookMark, stream);
    gpu_->wait(kLookMark);
    return pinned_;
  }

 private:
  clebsch::RowMemory& memory_;
  clebsch::GpuMemory* gpu_ = nullptr;
  clebsch_lammps::RowArray array_;
  std::size_t bytes_;
  char* pinned_ = nullptr;
};

inline clebsch_lammps::TransportMode mode_of(const std::string& name) {
  if (name == "nccl") return clebsch_lammps::TransportMode::nccl;
  if (name == "aware") return clebsch_lammps::TransportMode::aware;
  return name == "pinned" ? clebsch_lammps::TransportMode::host : clebsch_lammps::TransportMode::automatic;
}

inline clebsch_lammps::OpenTransport open(const std::string& transport, double seconds) {
  if (transport == "host")
    return clebsch_lammps::open_transport(MPI_COMM_WORLD, clebsch_lammps::TransportMode::automatic, "cpu", "", 1,
                                          seconds);
  const int gpu = my_gpu();
  return clebsch_lammps::open_transport(MPI_COMM_WORLD, mode_of(transport), "cuda:" + std::to_string(gpu),
                                        my_gpu_id(gpu), 1, seconds);
}
