#include "cuda/runtime/nccl_library.h"

#include <dlfcn.h>
#include <link.h>

#include <cstdlib>
#include <filesystem>

#include "core/errors.h"
#include "cuda/runtime/shared_library.h"

namespace clebsch::cuda {
namespace {

constexpr int kOldest = 20700;  // ncclSend and ncclRecv

/// The loader knows torch's NCCL by its bare name once libtorch_cuda is loaded. Where that is not, e.g. in a program
/// without torch's CUDA part, it lies in torch's wheels: site-packages/nvidia/nccl/lib beside site-packages/torch/lib.
std::vector<std::string> candidates() {
  constexpr const char* kName = "libnccl.so.2";
  if (const char* given = std::getenv("CLEBSCH_NCCL"); given && *given) return {given};
  std::vector<std::string> names;
  if (void* loaded = dlopen(kName, RTLD_NOW | RTLD_NOLOAD)) {
    names.emplace_back(kName);
    dlclose(loaded);
  }
  if (void* torch = dlopen("libtorch_cpu.so", RTLD_NOW | RTLD_NOLOAD)) {
    link_map* map = nullptr;
    if (dlinfo(torch, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name) {
      const auto packages = std::filesystem::path(map->l_name).parent_path().parent_path().parent_path();
      names.push_back((packages / "nvidia/nccl/lib" / kName).string());
    }
    dlclose(torch);
  }
  names.emplace_back(kName);
  return names;
}

struct Opened {
  Opened() : file("libnccl, NVIDIA's library for messages between GPUs", candidates()) {
    const auto look_up = [&](auto& function, const char* name) {
      function = file.function<std::decay_t<decltype(function)>>(name);
    };
    look_up(library.get_version, "ncclGetVersion");
    look_up(library.get_unique_id, "ncclGetUniqueId");
    look_up(library.comm_init_rank, "ncclCommInitRank");
    look_up(library.comm_destroy, "ncclCommDestroy");
    look_up(library.comm_abort, "ncclCommAbort");
    look_up(library.comm_async_error, "ncclCommGetAsyncError");
    look_up(library.error_string, "ncclGetErrorString");
    look_up(library.group_start, "ncclGroupStart");
    look_up(library.group_end, "ncclGroupEnd");
    require(library.get_version(&library.version) == 0 && library.version >= kOldest,
            "{}: expected NCCL 2.7 or later, got {}", file.name(), library.version);
    look_up(library.send, "ncclSend");
    look_up(library.receive, "ncclRecv");
    look_up(library.all_gather, "ncclAllGather");
    library.comm_init_rank_config =
        file.function_if_any<decltype(library.comm_init_rank_config)>("ncclCommInitRankConfig");
    library.comm_split = file.function_if_any<decltype(library.comm_split)>("ncclCommSplit");
    library.last_error = nullptr;
    if (library.version >= 21300) look_up(library.last_error, "ncclGetLastError");
  }
  SharedLibrary file;
  NcclLibrary library;
};

}  // namespace

const NcclLibrary& nccl_library() {
  static const Opened instance;  // a throwing constructor is tried again at the next call
  return instance.library;
}

void check_nccl(int result, const char* what, NcclComm comm) {
  if (result == 0) return;
  const NcclLibrary& nccl = nccl_library();
  const char* words = nccl.last_error ? nccl.last_error(comm) : nullptr;
  fail("{} failed: {}{}{}", what, nccl.error_string(result), words && *words ? ": " : "", words ? words : "");
}

}  // namespace clebsch::cuda
