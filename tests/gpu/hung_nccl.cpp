// An NCCL with a rank that hangs, for CLEBSCH_NCCL: every call goes on to the library that HUNG_NCCL_REAL names. With
// HUNG_NCCL=RANK:COUNT the rank of that number never comes back from its COUNT-th exchange, and sends nothing in it;
// with COUNT 0 it does not even connect.
#include <dlfcn.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>

namespace {

int own_rank = -1;

struct Id {
  char internal[128];
};

template <typename Function>
Function of_nccl(Function, const char* name) {
  const char* file = std::getenv("HUNG_NCCL_REAL");
  static void* const library = dlopen(file ? file : "libnccl.so.2", RTLD_NOW);
  void* const found = library ? dlsym(library, name) : nullptr;
  if (!found) {
    std::fprintf(stderr, "expected %s in HUNG_NCCL_REAL, '%s', found none\n", name, file ? file : "");
    std::abort();
  }
  return reinterpret_cast<Function>(found);
}

/// `done`: exchanges, this one included.
void hang_when_due(long done) {
  const char* const given = std::getenv("HUNG_NCCL");
  int rank = -1;
  long count = 0;
  if (!given || std::sscanf(given, "%d:%ld", &rank, &count) != 2 || rank != own_rank || done < count) return;
  for (;;) pause();
}
void hang_when_due() {
  static long exchanges = 0;
  hang_when_due(++exchanges);
}

}  // namespace

#define REAL(name) static const auto real = of_nccl(&name, #name)

extern "C" {

int ncclGetVersion(int* version) {
  REAL(ncclGetVersion);
  return real(version);
}
int ncclGetUniqueId(Id* id) {
  REAL(ncclGetUniqueId);
  return real(id);
}
const char* ncclGetErrorString(int result) {
  REAL(ncclGetErrorString);
  return real(result);
}
const char* ncclGetLastError(void* comm) {
  REAL(ncclGetLastError);
  return real(comm);
}
int ncclCommInitRank(void** comm, int ranks, Id id, int rank) {
  REAL(ncclCommInitRank);
  own_rank = rank;
  return real(comm, ranks, id, rank);
}
int ncclCommInitRankConfig(void** comm, int ranks, Id id, int rank, void* config) {
  REAL(ncclCommInitRankConfig);
  own_rank = rank;
  hang_when_due(0);
  return real(comm, ranks, id, rank, config);
}
int ncclCommSplit(void* comm, int color, int key, void** part, void* config) {
  REAL(ncclCommSplit);
  return real(comm, color, key, part, config);
}
int ncclCommDestroy(void* comm) {
  REAL(ncclCommDestroy);
  return real(comm);
}
int ncclCommAbort(void* comm) {
  REAL(ncclCommAbort);
  return real(comm);
}
int ncclCommGetAsyncError(void* comm, int* error) {
  REAL(ncclCommGetAsyncError);
  return real(comm, error);
}
int ncclGroupStart() {
  REAL(ncclGroupStart);
  hang_when_due();
  return real();
}
int ncclGroupEnd() {
  REAL(ncclGroupEnd);
  return real();
}
int ncclSend(const void* data, std::size_t count, int type, int rank, void* comm, void* stream) {
  REAL(ncclSend);
  return real(data, count, type, rank, comm, stream);
}
int ncclRecv(void* data, std::size_t count, int type, int rank, void* comm, void* stream) {
  REAL(ncclRecv);
  return real(data, count, type, rank, comm, stream);
}
int ncclAllGather(const void* mine, void* all, std::size_t count, int type, void* comm, void* stream) {
  REAL(ncclAllGather);
  hang_when_due();
  return real(mine, all, count, type, comm, stream);
}
}
