#pragma once
// For measurements alone: times of a thread of each role in memory at CLEBSCH_STAMPS, 4 KB a block: 1 KB a role, of
// which 16 words are the kernel's and 7 times 32 words parts'. Taken out again.
#ifdef CLEBSCH_STAMPS
struct Stamps {
  unsigned *begin, *at;
  bool mine;
  __device__ __forceinline__ Stamps(int role, bool is_mine) : mine(is_mine) {
    begin = reinterpret_cast<unsigned*>(CLEBSCH_STAMPS) + 1024 * blockIdx.x + 256 * role;
    at = begin + 16;
  }
  __device__ __forceinline__ void clock(unsigned* to) const {
    asm volatile("{\n.reg .pred p;\n.reg .u32 c;\nsetp.ne.s32 p, %0, 0;\nmov.u32 c, %%clock;\n@p st.global.u32 [%1], c;\n}" ::"r"(
                     static_cast<int>(mine)),
                 "l"(to)
                 : "memory");
  }
  __device__ __forceinline__ void timer(int index) const {
    asm volatile("{\n.reg .pred p;\n.reg .u64 c;\nsetp.ne.s32 p, %0, 0;\nmov.u64 c, %%globaltimer;\n@p st.global.u64 [%1], c;\n}" ::"r"(
                     static_cast<int>(mine)),
                 "l"(begin + index)
                 : "memory");
  }
  __device__ __forceinline__ void of_kernel(int index) const { clock(begin + index); }
  __device__ __forceinline__ void of_part(int index) const { clock(at + index); }
  __device__ __forceinline__ void next_part() {
    at += 32;
    if (at == begin + 240) at = begin + 16;
  }
};
#else
struct Stamps {
  __device__ __forceinline__ Stamps(int, bool) {}
  __device__ __forceinline__ void timer(int) const {}
  __device__ __forceinline__ void of_kernel(int) const {}
  __device__ __forceinline__ void of_part(int) const {}
  __device__ __forceinline__ void next_part() {}
};
#endif
