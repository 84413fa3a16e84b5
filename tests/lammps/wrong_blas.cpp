// A BLAS whose products are wrong, for LD_PRELOAD: stands for a library whose integers or calling convention differ.
namespace {

template <typename Real>
void fill(int m, int n, Real* c, int ldc) {
  for (int j = 0; j < n; ++j)
    for (int i = 0; i < m; ++i) c[i + static_cast<long>(j) * ldc] = Real(42);
}

}  // namespace

extern "C" void sgemm_(const char*, const char*, const int* m, const int* n, const int*, const float*, const float*,
                       const int*, const float*, const int*, const float*, float* c, const int* ldc) {
  fill(*m, *n, c, *ldc);
}

extern "C" void dgemm_(const char*, const char*, const int* m, const int* n, const int*, const double*, const double*,
                       const int*, const double*, const int*, const double*, double* c, const int* ldc) {
  fill(*m, *n, c, *ldc);
}
