// The inner loop of a matrix product whose operands lie in shared memory, tile by tile: a part of a kernel's body,
// which includes it there. sum[i][j] += x[i][k] w[k][j] over the k of one tile.
//
// In scope: the constants kDepth, kThreadRows, kThreadColumns, kVector, kDown and kAcross, the shared arrays
// xs and ws [2][kDepth][packs], a Pack being kVector numbers that one access moves, the `half` of them in use, the
// thread's place (tx, ty), and sum[kThreadRows][kThreadColumns]. A thread has rows in packs that are kDown apart and
// columns in packs that are kAcross apart, from its place on.
#pragma unroll 4
for (int k = 0; k < kDepth; ++k) {
  real a[kThreadRows], b[kThreadColumns];
#pragma unroll
  for (int i = 0; i < kThreadRows / kVector; ++i) {
    const Pack p = xs[half][k][i * kDown + ty];
#pragma unroll
    for (int v = 0; v < kVector; ++v) a[i * kVector + v] = p.v[v];
  }
#pragma unroll
  for (int j = 0; j < kThreadColumns / kVector; ++j) {
    const Pack p = ws[half][k][j * kAcross + tx];
#pragma unroll
    for (int v = 0; v < kVector; ++v) b[j * kVector + v] = p.v[v];
  }
#pragma unroll
  for (int i = 0; i < kThreadRows; ++i) {
#pragma unroll
    for (int j = 0; j < kThreadColumns; ++j) sum[i][j] = fma(a[i], b[j], sum[i][j]);
  }
}
