#pragma once
// The triangle multiplicative update on the CPU: in double precision for kDouble, else in 32 bits with left, right and
// o rounded to the precision's operand type (so at least as accurate as on a device). The bits of every result are the
// same for any number of threads.
#include "multilinear/triangle/arguments.h"

namespace clebsch::triangle {

/// x, mask and weights to out, left, right and o, which are all given; left and right may not be the memory of out.
void host_forward(const Arguments& arguments);
/// x, mask, weights, grad, left, right and o to the gradients that are wanted. A row whose mask is 0 adds nothing to
/// the gradients of p_in and g_in, and one that is not finite nothing at all where its `grad` is 0 too.
void host_backward(const Arguments& arguments);

}  // namespace clebsch::triangle
