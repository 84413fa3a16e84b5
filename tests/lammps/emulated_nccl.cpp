// NCCL by MPI, for tests on machines without GPUs: the part of its interface that src/cuda/runtime/nccl_library.cpp
// looks up, for data in the host's memory, which is the emulated GPU's (tests/unit/cuda_emulator). Calls are on their
// way at once, after what the emulated device was given before. EMULATED_NCCL_FAULT in the environment:
//   init    rank 1 cannot connect
//   late    connecting never ends
//   async   after some exchanges NCCL reports an error of another rank
//   hang    after some exchanges work on the device never ends, until the communicator is ended
#include <dlfcn.h>
#include <mpi.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

constexpr int kInvalidUsage = 5, kRemoteError = 6, kInProgress = 7;
constexpr int kFine = 6;  // exchanges before a fault

struct Id {
  char internal[128];
};
struct Config {
  size_t size;
  unsigned magic, version;
  int blocking;
};
struct Communicator {
  MPI_Comm world = MPI_COMM_NULL;
  int rank = 0, exchanges = 0;
  int busy = 0;  ///< how many more times it says that it is still connecting
};
struct Transfer {
  bool sends;
  void* data;
  size_t bytes;
  int rank;
  Communicator* comm;
};
std::vector<Transfer> group;
int groups = 0;

bool fault(const char* name) {
  const char* given = std::getenv("EMULATED_NCCL_FAULT");
  return given && std::string(given) == name;
}

template <typename Function>
Function emulated(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
}

void finish_device() {
  if (const auto finish = emulated<int (*)()>("cuCtxSynchronize")) finish();
}

/// Counts an exchange; true when it is to hang.
bool hangs(Communicator* comm) {
  if (++comm->exchanges <= kFine || !fault("hang")) return false;
  if (const auto hang = emulated<void (*)(int)>("emulated_hang")) hang(1);
  return true;
}

int do_group() {
  if (group.empty()) return 0;
  finish_device();
  Communicator* const comm = group.front().comm;
  if (!hangs(comm)) {
    std::vector<MPI_Request> requests;
    for (const Transfer& one : group) {
      requests.emplace_back();
      const int count = static_cast<int>(one.bytes);
      if (one.sends) MPI_Isend(one.data, count, MPI_BYTE, one.rank, 0, comm->world, &requests.back());
      if (!one.sends) MPI_Irecv(one.data, count, MPI_BYTE, one.rank, 0, comm->world, &requests.back());
    }
    MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
  }
  group.clear();
  return 0;
}

int transfer(bool sends, void* data, size_t bytes, int rank, void* handle) {
  auto* const comm = static_cast<Communicator*>(handle);
  if (rank == comm->rank) return kInvalidUsage;
  group.push_back({sends, data, bytes, rank, comm});
  return groups == 0 ? do_group() : 0;
}

}  // namespace

extern "C" {

int ncclGetVersion(int* version) { return *version = 22705, 0; }
int ncclGetUniqueId(Id* id) { return std::strcpy(id->internal, "emulated"), 0; }
const char* ncclGetErrorString(int result) {
  return result == kRemoteError ? "remote process exited or there was a network error" : "invalid usage";
}
const char* ncclGetLastError(void*) { return "(emulated)"; }

int ncclCommInitRank(void** comm, int ranks, Id id, int rank) {
  int all = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &all);
  if (std::strcmp(id.internal, "emulated") != 0 || ranks != all) return kInvalidUsage;
  if (fault("init") && rank == 1) return kInvalidUsage;
  auto* const made = new Communicator;
  made->rank = rank;
  if (!fault("init")) MPI_Comm_dup(MPI_COMM_WORLD, &made->world);
  *comm = made;
  return 0;
}
int ncclCommInitRankConfig(void** comm, int ranks, Id id, int rank, Config* config) {
  if (config->size != sizeof(Config) || config->magic != 0xcafebeefU || config->blocking != 0) return kInvalidUsage;
  if (fault("late")) return *comm = new Communicator{MPI_COMM_NULL, rank, 0, 1 << 30}, kInProgress;
  const int result = ncclCommInitRank(comm, ranks, id, rank);
  if (result != 0) return result;
  static_cast<Communicator*>(*comm)->busy = 3;
  return kInProgress;
}
int ncclCommSplit(void* comm, int, int key, void** part, Config* config) {
  auto* const whole = static_cast<Communicator*>(comm);
  if (whole->busy > 0 || config->blocking != 1) return kInvalidUsage;
  auto* const made = new Communicator;
  made->rank = key;
  if (whole->world != MPI_COMM_NULL) MPI_Comm_dup(whole->world, &made->world);
  whole->busy = 2;
  return *part = made, kInProgress;
}
int ncclCommDestroy(void* comm) {
  auto* const mine = static_cast<Communicator*>(comm);
  if (mine->world != MPI_COMM_NULL) MPI_Comm_free(&mine->world);
  return delete mine, 0;
}
int ncclCommAbort(void* comm) {
  if (const auto hang = emulated<void (*)(int)>("emulated_hang")) hang(0);
  return delete static_cast<Communicator*>(comm), 0;
}
int ncclCommGetAsyncError(void* comm, int* error) {
  auto* const mine = static_cast<Communicator*>(comm);
  *error = fault("async") && mine->exchanges > kFine ? kRemoteError : 0;
  if (mine->busy > 0) *error = kInProgress, --mine->busy;
  return 0;
}

int ncclGroupStart() { return ++groups, 0; }
int ncclGroupEnd() { return --groups == 0 ? do_group() : 0; }
int ncclSend(const void* data, size_t bytes, int, int rank, void* comm, void*) {
  return transfer(true, const_cast<void*>(data), bytes, rank, comm);
}
int ncclRecv(void* data, size_t bytes, int, int rank, void* comm, void*) {
  return transfer(false, data, bytes, rank, comm);
}
int ncclAllGather(const void* mine, void* all, size_t bytes, int, void* handle, void*) {
  auto* const comm = static_cast<Communicator*>(handle);
  finish_device();
  if (hangs(comm)) return 0;
  if (mine != static_cast<char*>(all) + bytes * static_cast<size_t>(comm->rank)) return kInvalidUsage;
  MPI_Allgather(MPI_IN_PLACE, 0, MPI_BYTE, all, static_cast<int>(bytes), MPI_BYTE, comm->world);
  return 0;
}

}  // extern "C"
