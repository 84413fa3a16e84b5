#include "pair_clebsch_kokkos.h"
