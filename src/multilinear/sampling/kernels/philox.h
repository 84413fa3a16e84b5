#pragma once
// Random numbers by counting: Philox4x32-10 (Salmon, Moraes, Dror, Shaw, SC'11, doi 10.1145/2063384.2063405). A number
// is a function of its place alone, so a sample is the same whatever threads or device draw it.

#if defined(__CUDACC__)
#define CLEBSCH_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define CLEBSCH_HOST_DEVICE inline
#endif

namespace clebsch::sampling {

struct PhiloxWords {
  unsigned word[4];
};

/// Ten rounds on the 128-bit counter (low, high) with the 64-bit key.
CLEBSCH_HOST_DEVICE PhiloxWords philox(unsigned long long key, unsigned long long low, unsigned long long high) {
  unsigned c0 = static_cast<unsigned>(low), c1 = static_cast<unsigned>(low >> 32);
  unsigned c2 = static_cast<unsigned>(high), c3 = static_cast<unsigned>(high >> 32);
  unsigned k0 = static_cast<unsigned>(key), k1 = static_cast<unsigned>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const unsigned long long a = 0xD2511F53ull * c0, b = 0xCD9E8D57ull * c2;
    c0 = static_cast<unsigned>(b >> 32) ^ c1 ^ k0;
    c2 = static_cast<unsigned>(a >> 32) ^ c3 ^ k1;
    c1 = static_cast<unsigned>(b);
    c3 = static_cast<unsigned>(a);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

/// A uniform number in [0, 1), a multiple of 2^-53: of `seed`, for a sample and a factor; `stage` 0 chooses a component
/// of the factor's mixture, 1 a row.
CLEBSCH_HOST_DEVICE double philox_uniform(unsigned long long seed, unsigned long long sample, int factor, int stage) {
  const PhiloxWords words = philox(seed, sample, static_cast<unsigned long long>(factor));
  const double high = words.word[2 * stage] >> 5, low = words.word[2 * stage + 1] >> 6;
  return (high * 67108864.0 + low) * (1.0 / 9007199254740992.0);
}

}  // namespace clebsch::sampling
