#pragma once
// CUDA C++ as far as the generated kernels use it, for the host's compiler. Put before a generated source; see
// README.md.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#define __global__
#define __device__
#define __host__
#define __constant__ static const
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
// In a section of its own, which has a begin and an end; "used", or the compiler would take what no kernel writes for
// the zeros of a static variable.
#define __shared__ static __attribute__((used, section("emulated_shared")))
#define __align__(bytes) __attribute__((aligned(bytes)))
// Host spelling of what CUDA allows before and after a type.
#define __restrict__ __restrict

struct EmulatedIndex {
  unsigned x, y, z;
};

extern "C" {
extern EmulatedIndex threadIdx, blockIdx, blockDim, gridDim;
// Defined in engine.cpp.
void emulated_meet_block(int line);
void emulated_meet_some(int barrier, int threads, int line);
/// bar.sync (waits) and bar.arrive (does not) of one barrier, which may stand at different lines.
void emulated_meet_named(int barrier, int threads, int waits, int line);
void emulated_meet_warp(unsigned mask, int line);
/// mbarriers, by their addresses in shared memory. `bytes` of copies are still to come; a wait is for the end of the
/// phase of a parity.
void emulated_barrier_begin(unsigned address, int arrivals);
void emulated_barrier_arrive(unsigned address, unsigned bytes);
void emulated_barrier_take(unsigned address, unsigned bytes);
void emulated_barrier_wait(unsigned address, unsigned parity, int line);
/// Hands `size` bytes to the warp; returns the 32 slots of 16 bytes that all lanes filled, valid until the next
/// meeting.
const char* emulated_exchange(unsigned mask, const void* value, unsigned size, int line);
[[noreturn]] void emulated_fail(const char* what, int line);
// Made by the linker; null in a module without shared memory.
extern char __start_emulated_shared[] __attribute__((weak, visibility("hidden")));
extern char __stop_emulated_shared[] __attribute__((weak, visibility("hidden")));
}

constexpr int warpSize = 32;

#define __syncthreads() emulated_meet_block(__LINE__)
#define __syncwarp(...) emulated::meet_warp(__LINE__, ##__VA_ARGS__)
#define __shfl_sync(mask, value, lane) emulated::shuffle(mask, value, static_cast<int>(lane), __LINE__)
#define __shfl_xor_sync(mask, value, bits) emulated::shuffle(mask, value, emulated::lane() ^ (bits), __LINE__)
#define __shfl_down_sync(mask, value, by) emulated::shuffle_from(mask, value, emulated::lane() + (by), __LINE__)
#define __shfl_up_sync(mask, value, by) emulated::shuffle_from(mask, value, emulated::lane() - (by), __LINE__)
#define __ballot_sync(mask, predicate) emulated::ballot(mask, predicate, __LINE__)
#define __any_sync(mask, predicate) (emulated::ballot(mask, predicate, __LINE__) != 0)
#define __all_sync(mask, predicate) (emulated::ballot(mask, predicate, __LINE__) == (mask))

namespace emulated {

inline int lane() { return static_cast<int>(threadIdx.x % 32); }
inline void meet_warp(int line, unsigned mask = 0xffffffffu) { emulated_meet_warp(mask, line); }

template <typename T>
T slot(const char* slots, int source) {
  T value;
  std::memcpy(&value, slots + 16 * source, sizeof(T));
  return value;
}

template <typename T>
T shuffle(unsigned mask, T value, int source, int line) {
  static_assert(sizeof(T) <= 16, "an exchange moves at most 16 bytes");
  const char* slots = emulated_exchange(mask, &value, sizeof(T), line);
  source &= 31;
  if (!(mask >> source & 1)) emulated_fail("a lane reads from a lane that is not in the mask", line);
  return slot<T>(slots, source);
}

/// A lane whose source is outside the warp keeps its own value.
template <typename T>
T shuffle_from(unsigned mask, T value, int source, int line) {
  const char* slots = emulated_exchange(mask, &value, sizeof(T), line);
  return source < 0 || source > 31 ? value : slot<T>(slots, source);
}

template <typename P>
unsigned ballot(unsigned mask, P predicate, int line) {
  const int mine = predicate ? 1 : 0;
  const char* slots = emulated_exchange(mask, &mine, sizeof(mine), line);
  unsigned bits = 0;
  for (int i = 0; i < 32; ++i) bits |= (mask >> i & 1) && slot<int>(slots, i) ? 1u << i : 0u;
  return bits;
}

// In instructions.cpp, compiled once: a kernel takes longer to compile than to run.
/// Before every block: nothing of shared memory is read or written (`watched`: see proxies.cpp), no copies are under
/// way, and shared memory holds words that differ from block to block. Each is not a number, as a float and as a part
/// of a double, and as an index far out of range.
void begin_block(uint64_t seed, char* shared, char* shared_end, bool watched);

/// cp.async: until its group is waited for, the target holds not-a-numbers, so that a read too early shows, and so does
/// a copy into what is still to be read.
void copy_later(void* to, const void* from, size_t bytes);
/// The same of the first `used` bytes; the others become zeros.
void copy_or_clear_later(void* to, const void* from, size_t bytes, int used);
void end_group();
/// The last group is the one that is being made.
void await_groups(size_t most_open);

// In warpgroups.cpp: compute capability 9.0. Addresses are bytes from where shared memory begins.
void begin_block_of_warpgroups(char* shared);
/// In proxies.cpp. Shared memory that bulk copies or products use is watched: a block ends with an error where they
/// overwrite what was read, or read what was written, by ordinary instructions of a thread with no fence.proxy.async
/// after it. Of writes a fence of who copies or multiplies will do as well, since it waited for the writer.
void begin_block_of_proxies(const char* shared, const char* shared_end, bool watched);
void fence_proxies();
void note_read(const void* at, size_t bytes);
void note_write(const void* at, size_t bytes);
void check_copy(const void* at, size_t bytes, int line);
void check_product(const void* at, size_t bytes);
/// cp.async.bulk into shared memory: the target holds not-a-numbers until the copy ends, which is some time before
/// somebody goes on who waits at the barrier.
void copy_bulk(unsigned to, const void* from, unsigned bytes, unsigned barrier, int line);
/// Bulk stores to global memory, of groups of a thread: done when it waits for them, and lost if it does not.
void store_bulk(void* to, unsigned from, unsigned bytes, int line);
void end_stores();
void await_stores();
/// Ends one copy, if there is one; which follows from a random number.
bool finish_a_copy(uint64_t random);
bool has_open_copies();
enum class Operand { half, bfloat, tf32 };
/// wgmma.mma_async.sync.aligned.m64nNk16.f32, d = [d +] a b, of a warp's 16 rows: a in registers as of mma.m16n8k16 or,
/// where they are null, in shared memory, b there; PTX ISA, "matrix descriptor", for lines of 128 bytes whose parts are
/// exchanged. `turned`: matrices in shared memory lie by rows of the inner index; 2: a alone, 3: b alone. It is
/// computed when its group is waited for, and until then the sums are no numbers.
void multiply_later(float* d, int columns, const unsigned* rows, unsigned long long a, unsigned long long b, int more,
                    int turned, Operand number, int line);
template <int kCount>
void multiply_group(float (&d)[kCount], const unsigned (&a)[4], unsigned long long b, int more, int turned, bool brain,
                    int line) {
  multiply_later(d, 2 * kCount, a, 0, b, more, turned, brain ? Operand::bfloat : Operand::half, line);
}
template <int kCount>
void multiply_group(float (&d)[kCount], unsigned long long a, unsigned long long b, int more, int turned, bool brain,
                    int line) {
  multiply_later(d, 2 * kCount, nullptr, a, b, more, turned, brain ? Operand::bfloat : Operand::half, line);
}
/// The same of m64nNk8.f32.tf32.tf32: a in registers as of mma.m16n8k8, b by columns of the inner index.
template <int kCount>
void multiply_group_tf32(float (&d)[kCount], const unsigned (&a)[4], unsigned long long b, int more, int line) {
  multiply_later(d, 2 * kCount, a, 0, b, more, 0, Operand::tf32, line);
}
void end_products();
/// All lanes of a warp come here together.
void await_products(size_t most_open, int line);
/// mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32, c += a b, with the PTX ISA's places of a fragment's numbers:
/// with g = lane / 4, t = lane % 4, a[r] is (row g + 8 (r % 2), k = t + 4 (r / 2)), b[r] is (k = t + 4 r, column g),
/// c[r] is (row g + 8 (r / 2), column 2 t + r % 2). As tensor cores do, it reads the 19 upper bits of an operand and
/// cuts the sum's bits off rather than rounding it.
void multiply_tf32(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2], int line);
/// mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 or with bf16, c += a b. A register holds two numbers, the first in
/// the lower bits: a[r] is (row g + 8 (r % 2), k = 2 t + 8 (r / 2) and the next), b[r] is (k = 2 t + 8 r and the next,
/// column g), c[r] as in multiply_tf32. Tensor cores add in some order and cut bits off: eight products at a time here.
void multiply_half(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2], int line);
void multiply_bfloat(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2], int line);
/// mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64, c += a b: with g = lane / 4, t = lane % 4, a is (row g, k = t), b
/// is (k = t, column g), c[r] is (row g, column 2 t + r).
void multiply_f64(double (&c)[2], double a, double b, int line);
/// mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64, c += a b, with the places of multiply_tf32.
void multiply_large_f64(double (&c)[4], const double (&a)[4], const double (&b)[2], int line);

/// ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16: lane 8 i + r has the address of row r of tile i; with g = lane / 4,
/// t = lane % 4 the lane gets (2 t, g) and (2 t + 1, g) of tile i in to[i].
void load_transposed(unsigned (&to)[4], const unsigned short* from, int line);
/// Without .trans: the lane gets (g, 2 t) and (g, 2 t + 1) of tile i in to[i].
void load_matrices(unsigned (&to)[4], const void* from, int line);

/// stmatrix.sync.aligned.m8n8.x4.trans.shared.b16, to an address in shared memory: the opposite of load_transposed.
void store_turned_matrices(char* to, const unsigned (&from)[4], int line);
/// Without .trans: the opposite of load_matrices.
void store_straight_matrices(char* to, const unsigned (&from)[4], int line);
/// Addresses of shared memory as instructions have them.
inline void copy_later(unsigned to, const void* from, size_t bytes) {
  copy_later(__start_emulated_shared + to, from, bytes);
}
inline void load_transposed(unsigned (&to)[4], unsigned from, int line) {
  load_transposed(to, reinterpret_cast<const unsigned short*>(__start_emulated_shared + from), line);
}
inline void load_vector(void* to, unsigned from, int line) {
  if (from % 16 != 0) emulated_fail("ld.shared.v4 from an address that is no multiple of 16", line);
  note_read(__start_emulated_shared + from, 16);
  std::memcpy(to, __start_emulated_shared + from, 16);
}
inline void load_matrices(unsigned (&to)[4], unsigned from, int line) {
  load_matrices(to, static_cast<const void*>(__start_emulated_shared + from), line);
}
inline void store_matrices(unsigned to, const unsigned (&from)[4], int line) {
  store_straight_matrices(__start_emulated_shared + to, from, line);
}
inline void store_transposed(unsigned to, const unsigned (&from)[4], int line) {
  store_turned_matrices(__start_emulated_shared + to, from, line);
}

template <typename To, typename From>
To bits(From value) {
  static_assert(sizeof(To) == sizeof(From), "the same bits");
  To result;
  std::memcpy(&result, &value, sizeof(To));
  return result;
}

/// prmt.b32 of a word and zeros: four bits of the selector a byte of the result, 0 to 3 of the word, others zero.
inline unsigned permute(unsigned word, unsigned selector) {
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned from = selector >> 4 * i & 7u;
    if (from < 4) result |= (word >> 8 * from & 0xffu) << 8 * i;
  }
  return result;
}

/// Calls a kernel with arguments as cuLaunchKernel takes them: their addresses in order.
template <typename... A, size_t... I>
void call(void (*kernel)(A...), void** arguments, std::index_sequence<I...>) {
  kernel(*static_cast<std::remove_reference_t<A>*>(arguments[I])...);
}
template <typename... A>
void call(void (*kernel)(A...), void** arguments) {
  call(kernel, arguments, std::index_sequence_for<A...>{});
}

}  // namespace emulated

inline long long __double_as_longlong(double x) { return emulated::bits<long long>(x); }
inline double __longlong_as_double(long long x) { return emulated::bits<double>(x); }
inline int __float_as_int(float x) { return emulated::bits<int>(x); }
inline unsigned __float_as_uint(float x) { return emulated::bits<unsigned>(x); }
inline float __uint_as_float(unsigned x) { return emulated::bits<float>(x); }

/// Addresses in shared memory are places in its section.
inline size_t __cvta_generic_to_shared(const void* at) {
  return static_cast<size_t>(static_cast<const char*>(at) - __start_emulated_shared);
}

template <typename T>
T __ldg(const T* p) {
  return *p;
}
template <typename T>
T __ldcs(const T* p) {
  return *p;
}
template <typename T>
T __ldcg(const T* p) {
  return *p;
}
template <typename T, typename V>
void __stcs(T* p, V value) {
  *p = value;
}
template <typename T, typename V>
T atomicAdd(T* p, V value) {
  const T old = *p;
  *p = old + value;
  return old;
}

template <typename T, typename V>
T atomicMin(T* p, V value) {
  const T old = *p;
  if (value < old) *p = value;
  return old;
}

template <typename T, typename V>
T atomicMax(T* p, V value) {
  const T old = *p;
  if (old < value) *p = value;
  return old;
}

template <typename T, typename V>
T atomicOr(T* p, V value) {
  const T old = *p;
  *p = old | value;
  return old;
}
/// Beyond 64 bits the nearest of their numbers, and the least for what is no number.
inline long long __float2ll_rn(float x) {
  if (!(x < 9223372036854775808.0f)) return x == x ? INT64_MAX : INT64_MIN;
  return x <= -9223372036854775808.0f ? INT64_MIN : std::llrint(x);
}

template <typename A, typename B>
constexpr std::common_type_t<A, B> min(A a, B b) {
  return b < a ? b : a;
}
template <typename A, typename B>
constexpr std::common_type_t<A, B> max(A a, B b) {
  return a < b ? b : a;
}
using std::abs;
using std::exp;
using std::fma;
using std::log;
using std::pow;
using std::sqrt;
using std::tanh;
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }
inline float rsqrt(float x) { return 1.0f / std::sqrt(x); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }

struct __align__(8) float2 {
  float x, y;
};
struct __align__(16) float4 {
  float x, y, z, w;
};
struct __align__(16) double2 {
  double x, y;
};
struct __align__(8) int2 {
  int x, y;
};
struct __align__(16) int4 {
  int x, y, z, w;
};
struct __align__(8) uint2 {
  unsigned x, y;
};
struct __align__(16) uint4 {
  unsigned x, y, z, w;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline double2 make_double2(double x, double y) { return {x, y}; }
inline int2 make_int2(int x, int y) { return {x, y}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
