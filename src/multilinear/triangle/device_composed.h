#pragma once
// The forward pass of the triangle multiplicative update out of products by cuBLAS and kernels between them: any
// precision, any widths that are multiples of 16.
#include "multilinear/triangle/device_triangle.h"

namespace clebsch::triangle {

/// As device_forward. Takes memory for about one size of x beside left, right and o. Throws Error for a hidden width of
/// which eight rows of o are more than 32 KiB.
void composed_forward(const DeviceArguments& given, const Allocate& allocate, cuda::Stream stream);

}  // namespace clebsch::triangle
