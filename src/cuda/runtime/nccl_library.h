#pragma once
// NCCL, opened at run time: a build of Clebsch needs none, and a process has at most torch's.
#include <cstddef>

#include "cuda/runtime/driver.h"

namespace clebsch::cuda {

/// ncclUniqueId, which is passed by value.
struct NcclId {
  char internal[128];
};
/// ncclComm_t.
using NcclComm = void*;

/// ncclConfig_t as NCCL 2.14 had it: by size and version a later NCCL knows what it has to fill in by itself.
struct NcclConfig {
  std::size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeefU;
  unsigned version = 21400;
  int blocking = 1;
};

/// The part of nccl.h that is used; results are ncclResult_t, 0 for success.
struct NcclLibrary {
  int (*get_version)(int*);
  int (*get_unique_id)(NcclId*);
  int (*comm_init_rank)(NcclComm*, int, NcclId, int);
  int (*comm_init_rank_config)(NcclComm*, int, NcclId, int, NcclConfig*);  ///< null before NCCL 2.14
  int (*comm_split)(NcclComm, int, int, NcclComm*, NcclConfig*);           ///< null before NCCL 2.18
  int (*comm_destroy)(NcclComm);
  int (*comm_abort)(NcclComm);
  int (*comm_async_error)(NcclComm, int*);
  const char* (*error_string)(int);
  const char* (*last_error)(NcclComm);  ///< what NCCL says in words; null before NCCL 2.13
  int (*group_start)();
  int (*group_end)();
  int (*send)(const void*, std::size_t, int, int, NcclComm, Stream);
  int (*receive)(void*, std::size_t, int, int, NcclComm, Stream);
  int (*all_gather)(const void*, void*, std::size_t, int, NcclComm, Stream);
  int version = 0;  ///< 10000 * major + 100 * minor + patch
};

constexpr int kNcclInProgress = 7;  // ncclInProgress: no error
constexpr int kNcclBytes = 1;       // ncclUint8

/// CLEBSCH_NCCL first, then what the process has loaded, then torch's wheels, then what the loader finds. Throws Error
/// that says what was tried, or which function is missing.
const NcclLibrary& nccl_library();

/// Throws Error with what failed and NCCL's words for it, unless `result` is 0. `comm` may be null.
void check_nccl(int result, const char* what, NcclComm comm);

}  // namespace clebsch::cuda
