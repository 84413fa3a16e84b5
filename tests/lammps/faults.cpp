// Makes one rank fail, for LD_PRELOAD. CLEBSCH_FAULT=RANK:KIND:WHERE:COUNT, which the input sets when it wants to
// (`shell putenv`), names
//   RANK   by the launcher's count
//   KIND   memory (there is none left), throw (an exception), kill, stop or interrupt (a signal), sleep (for 4 seconds)
//   WHERE  send: when a message of the exchange of features is sent (MPI_Isend, which LAMMPS itself does not use then);
//          a number: when so many bytes or more are allocated (throw: by operator new)
//   COUNT  at which of these, from 1; memory fails from then on
// The moment goes to the file fault.time, in seconds since the epoch.
#include <fcntl.h>
#include <mpi.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <initializer_list>
#include <new>
#include <stdexcept>

extern "C" {
void* __libc_malloc(size_t);
void* __libc_memalign(size_t, size_t);
}

namespace {

std::atomic<long> seen{0};

int rank_of_launcher() {
  for (const char* name : {"PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK"})
    if (const char* value = std::getenv(name)) return std::atoi(value);
  return -1;
}

void note_the_moment() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  char text[64];
  const int length = std::snprintf(text, sizeof text, "%ld.%09ld\n", static_cast<long>(now.tv_sec), now.tv_nsec);
  const int file = open("fault.time", O_WRONLY | O_CREAT | O_EXCL, 0644);
  if (file < 0) return;
  if (write(file, text, static_cast<size_t>(length)) != length) _exit(99);
  close(file);
}

/// `bytes` of an allocation, 0: a message. True when the allocation is to fail. Throws where `may_throw`.
bool fails(size_t bytes, bool may_throw = false) {
  const char* fault = std::getenv("CLEBSCH_FAULT");
  if (!fault) return false;
  int rank = 0;
  long count = 0;
  char kind[16], where[16];
  if (std::sscanf(fault, "%d:%15[^:]:%15[^:]:%ld", &rank, kind, where, &count) != 4) return false;
  const bool send = std::strcmp(where, "send") == 0;
  if (send != (bytes == 0) || rank != rank_of_launcher()) return false;
  if (!send && bytes < std::strtoul(where, nullptr, 10)) return false;
  const bool throws = std::strcmp(kind, "throw") == 0;
  if (throws && !may_throw) return false;
  const long now = ++seen;
  if (std::strcmp(kind, "memory") == 0) {
    if (now < count) return false;
    if (now == count) note_the_moment();
    return true;
  }
  if (now != count) return false;
  note_the_moment();
  if (throws) throw std::runtime_error("an exception of the test");
  if (std::strcmp(kind, "kill") == 0) raise(SIGKILL);
  if (std::strcmp(kind, "stop") == 0) raise(SIGSTOP);
  if (std::strcmp(kind, "interrupt") == 0) raise(SIGINT);
  if (std::strcmp(kind, "sleep") == 0) sleep(4);
  return false;
}

constexpr size_t kLeast = 512;  // smaller allocations are not looked at

}  // namespace

void* operator new(size_t bytes) {
  const bool failed = bytes >= kLeast && fails(bytes, true);
  void* const memory = failed ? nullptr : __libc_malloc(bytes == 0 ? 1 : bytes);
  if (!memory) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

extern "C" {

void* malloc(size_t bytes) {
  if (bytes >= kLeast && fails(bytes)) {
    errno = ENOMEM;
    return nullptr;
  }
  return __libc_malloc(bytes);
}

void* aligned_alloc(size_t alignment, size_t bytes) {
  if (bytes >= kLeast && fails(bytes)) {
    errno = ENOMEM;
    return nullptr;
  }
  return __libc_memalign(alignment, bytes);
}

int posix_memalign(void** to, size_t alignment, size_t bytes) {
  if (bytes >= kLeast && fails(bytes)) return ENOMEM;
  *to = __libc_memalign(alignment, bytes);
  return *to ? 0 : ENOMEM;
}

int MPI_Isend(const void* data, int count, MPI_Datatype type, int rank, int tag, MPI_Comm comm, MPI_Request* request) {
  if (tag == 0) fails(0, true);
  return PMPI_Isend(data, count, type, rank, tag, comm, request);
}
}
