#pragma once
// A kernel that may be launched while the one before it still runs (programmatic dependent launch), which hides the
// time that a launch takes. A source with this file marks its module by a symbol, from which load_module() knows that
// its kernels are launched so, and each of them calls start_early() before it reads or writes anything.
// Kernels for warpgroups wait by themselves, later: before it they read what is older than the kernel before them, and
// write nothing to memory.

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
extern "C" __constant__ char clebsch_starts_early = 1;
#endif

/// Waits until the kernels before this one are done and what they wrote is to be seen; only then lets the next one
/// come. In this order no more than two kernels are under way, and the later one begins, with empty caches, when nobody
/// reads what it will overwrite.
__device__ __forceinline__ void start_early() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
