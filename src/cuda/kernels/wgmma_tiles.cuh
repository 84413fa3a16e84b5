#pragma once
// Products of warpgroups with sums of 64 rows and 32 to 256 columns, both operands from shared memory, each in the one
// or the other layout (wgmma.cuh has those of 64 and 128 columns). CLEBSCH_HALF is the operands' type.
#include "cuda/kernels/wgmma.cuh"

// Sixteen registers of sums in the text of an instruction, and as its operands.
#define CLEBSCH_PLACES_AT_0 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define CLEBSCH_PLACES_AT_16 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define CLEBSCH_PLACES_AT_32 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define CLEBSCH_PLACES_AT_48 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define CLEBSCH_PLACES_AT_64 "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define CLEBSCH_PLACES_AT_80 "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define CLEBSCH_PLACES_AT_96 \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111"
#define CLEBSCH_PLACES_AT_112 \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define CLEBSCH_SUMS_AT(d, at)                                                                                       \
  "+f"(d[at]), "+f"(d[at + 1]), "+f"(d[at + 2]), "+f"(d[at + 3]), "+f"(d[at + 4]), "+f"(d[at + 5]), "+f"(d[at + 6]), \
      "+f"(d[at + 7]), "+f"(d[at + 8]), "+f"(d[at + 9]), "+f"(d[at + 10]), "+f"(d[at + 11]), "+f"(d[at + 12]),       \
      "+f"(d[at + 13]), "+f"(d[at + 14]), "+f"(d[at + 15])
#define CLEBSCH_TILE_PLACES_1 CLEBSCH_PLACES_AT_0
#define CLEBSCH_TILE_PLACES_2 CLEBSCH_TILE_PLACES_1 ", " CLEBSCH_PLACES_AT_16
#define CLEBSCH_TILE_PLACES_3 CLEBSCH_TILE_PLACES_2 ", " CLEBSCH_PLACES_AT_32
#define CLEBSCH_TILE_PLACES_4 CLEBSCH_TILE_PLACES_3 ", " CLEBSCH_PLACES_AT_48
#define CLEBSCH_TILE_PLACES_5 CLEBSCH_TILE_PLACES_4 ", " CLEBSCH_PLACES_AT_64
#define CLEBSCH_TILE_PLACES_6 CLEBSCH_TILE_PLACES_5 ", " CLEBSCH_PLACES_AT_80
#define CLEBSCH_TILE_PLACES_7 CLEBSCH_TILE_PLACES_6 ", " CLEBSCH_PLACES_AT_96
#define CLEBSCH_TILE_PLACES_8 CLEBSCH_TILE_PLACES_7 ", " CLEBSCH_PLACES_AT_112
#define CLEBSCH_TILE_SUMS_1(d) CLEBSCH_SUMS_AT(d, 0)
#define CLEBSCH_TILE_SUMS_2(d) CLEBSCH_TILE_SUMS_1(d), CLEBSCH_SUMS_AT(d, 16)
#define CLEBSCH_TILE_SUMS_3(d) CLEBSCH_TILE_SUMS_2(d), CLEBSCH_SUMS_AT(d, 32)
#define CLEBSCH_TILE_SUMS_4(d) CLEBSCH_TILE_SUMS_3(d), CLEBSCH_SUMS_AT(d, 48)
#define CLEBSCH_TILE_SUMS_5(d) CLEBSCH_TILE_SUMS_4(d), CLEBSCH_SUMS_AT(d, 64)
#define CLEBSCH_TILE_SUMS_6(d) CLEBSCH_TILE_SUMS_5(d), CLEBSCH_SUMS_AT(d, 80)
#define CLEBSCH_TILE_SUMS_7(d) CLEBSCH_TILE_SUMS_6(d), CLEBSCH_SUMS_AT(d, 96)
#define CLEBSCH_TILE_SUMS_8(d) CLEBSCH_TILE_SUMS_7(d), CLEBSCH_SUMS_AT(d, 112)

/// d (64, 2 kCount) = [d +] a (64, 16) b (16, 2 kCount); `more`: 0 for the first product. kTurnedA, kTurnedB: the
/// operand lies by rows of the inner index, else by columns.
template <int kTurnedA, int kTurnedB, int kCount>
struct TileProduct;
#define CLEBSCH_TILE_PRODUCT(count, parts, columns, of_a, of_b, of_more, of_turned_a, of_turned_b)                \
  template <int kTurnedA, int kTurnedB>                                                                           \
  struct TileProduct<kTurnedA, kTurnedB, count> {                                                                 \
    static __device__ __forceinline__ void add(float (&d)[count], unsigned long long a, unsigned long long b,     \
                                               int more) {                                                        \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" of_more ", 0;\nwgmma.mma_async.sync.aligned.m64n" columns \
                   "k16.f32." CLEBSCH_HALF "." CLEBSCH_HALF " {" CLEBSCH_TILE_PLACES_##parts                      \
                   "}, %" of_a ", %" of_b ", p, 1, 1, %" of_turned_a ", %" of_turned_b ";\n}"                     \
                   : CLEBSCH_TILE_SUMS_##parts(d)                                                                 \
                   : "l"(a), "l"(b), "r"(more), "n"(kTurnedA), "n"(kTurnedB));                                    \
    }                                                                                                             \
  };
CLEBSCH_TILE_PRODUCT(16, 1, "32", "16", "17", "18", "19", "20")
CLEBSCH_TILE_PRODUCT(32, 2, "64", "32", "33", "34", "35", "36")
CLEBSCH_TILE_PRODUCT(48, 3, "96", "48", "49", "50", "51", "52")
CLEBSCH_TILE_PRODUCT(64, 4, "128", "64", "65", "66", "67", "68")
CLEBSCH_TILE_PRODUCT(80, 5, "160", "80", "81", "82", "83", "84")
CLEBSCH_TILE_PRODUCT(96, 6, "192", "96", "97", "98", "99", "100")
CLEBSCH_TILE_PRODUCT(112, 7, "224", "112", "113", "114", "115", "116")
CLEBSCH_TILE_PRODUCT(128, 8, "256", "128", "129", "130", "131", "132")
