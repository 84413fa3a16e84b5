#pragma once
// NVRTC has no <cstdint>.
typedef long long int64;
