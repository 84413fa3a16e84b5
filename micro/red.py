"""Additions in L2 by type: numbers an ns (a number of u32x2 is two additions). python micro/red.py"""
import torch

SOURCE = r"""
template <typename T, int PLANES>
__device__ void run(T* data, int rows, int spread, int iterations) {
  const int warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
  unsigned state = warp * 2654435761u + 12345u;
  for (int it = 0; it < iterations; ++it) {
    state = state * 1664525u + 1013904223u;
    const int row = spread == 0 ? (state >> 8) % rows : (it * (rows / iterations) + (state >> 8) % spread) % rows;
    T* target = data + (long long)row * 256 * PLANES + lane;
#pragma unroll
    for (int k = 0; k < 8 * PLANES; ++k) atomicAdd(target + 32 * k, (T)(it + k));
  }
}
extern "C" __global__ void red_f32(float* d, int rows, int spread, int n) { run<float, 1>(d, rows, spread, n); }
extern "C" __global__ void red_u32(unsigned* d, int rows, int spread, int n) { run<unsigned, 1>(d, rows, spread, n); }
extern "C" __global__ void red_u32x2(unsigned* d, int rows, int spread, int n) { run<unsigned, 2>(d, rows, spread, n); }
extern "C" __global__ void red_u64(unsigned long long* d, int rows, int spread, int n) {
  run<unsigned long long, 1>(d, rows, spread, n);
}
"""
data = torch.zeros(2_000_000, dtype=torch.float64, device="cuda")
for name in ("red_f32", "red_u32", "red_u32x2", "red_u64"):
    kernel = torch.cuda._compile_kernel(SOURCE, name)
    for spread in (0, 500, 100, 20):
        launch = lambda: kernel(grid=(528, 1, 1), block=(128, 1, 1), args=[data, 1000, spread, 158])
        launch()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(20):
            launch()
        end.record()
        torch.cuda.synchronize()
        ns = begin.elapsed_time(end) / 20 * 1e6
        print(f"{name:10s} spread {spread:4d}: {ns / 1e3:8.1f} us, {528 * 4 * 158 * 256 / ns:7.0f} numbers/ns", flush=True)
