#pragma once
// Copies from global to shared memory that go on while a thread computes; devices before compute capability 8.0 wait.

/// Copies the first `bytes` (0 or kBytes; kBytes is 8 or 16) and makes the rest of kBytes zeros.
template <int kBytes>
__device__ __forceinline__ void copy_or_clear(double* to, const double* from, int bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
  for (int i = 0; i < kBytes / 8; ++i) to[i] = 8 * i < bytes ? from[i] : 0.0;
#else
  if constexpr (kBytes == 16) {  // not by way of the first cache, which would keep what is read once
    asm volatile(
        "cp.async.cg.shared.global [%0], [%1], %2, %3;" ::"r"(static_cast<unsigned>(__cvta_generic_to_shared(to))),
        "l"(from), "n"(kBytes), "r"(bytes)
        : "memory");
  } else {
    asm volatile(
        "cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(static_cast<unsigned>(__cvta_generic_to_shared(to))),
        "l"(from), "n"(kBytes), "r"(bytes)
        : "memory");
  }
#endif
}

/// This thread's copies since the last call are a group.
__device__ __forceinline__ void end_copies() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/// Waits for this thread's groups but the last kOpen.
template <int kOpen>
__device__ __forceinline__ void await_copies() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(kOpen) : "memory");
#endif
}
