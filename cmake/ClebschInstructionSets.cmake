# The instruction sets that loops over channels are compiled for, with the bytes of a vector and the compiler's options:
# CLEBSCH_INSTRUCTION_SETS, CLEBSCH_VECTOR_BYTES_<set>, CLEBSCH_VECTOR_OPTIONS_<set>. baseline is what the compiler makes for
# any machine of its kind: SSE2, or NEON.
set(CLEBSCH_INSTRUCTION_SETS baseline)
set(CLEBSCH_VECTOR_BYTES_baseline 16)
set(CLEBSCH_VECTOR_OPTIONS_baseline "")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND CLEBSCH_INSTRUCTION_SETS avx2 avx512)
  set(CLEBSCH_VECTOR_BYTES_avx2 32)
  set(CLEBSCH_VECTOR_OPTIONS_avx2 -mavx2 -mfma)
  set(CLEBSCH_VECTOR_BYTES_avx512 64)
  set(CLEBSCH_VECTOR_OPTIONS_avx512 -mavx512f -mavx512dq -mavx512vl -mavx512bw -mavx2 -mfma -mprefer-vector-width=512)
endif()

# clebsch_for_instruction_sets(<target> <name> <header>): the target gets <header> (a path from src) compiled once for each
# instruction set as NAME_SET. The header finds the bytes of a vector in CLEBSCH_VECTOR_BYTES and the name of the table that
# it defines, NAME_SET, in CLEBSCH_LOOPS. src/multilinear/instruction_set.h chooses among the tables at run time.
function(clebsch_for_instruction_sets target name header)
  foreach(isa ${CLEBSCH_INSTRUCTION_SETS})
    set(file ${CMAKE_CURRENT_BINARY_DIR}/${name}_${isa}.cpp)
    file(CONFIGURE OUTPUT ${file} @ONLY CONTENT
"// Made by cmake/ClebschInstructionSets.cmake.
#define CLEBSCH_VECTOR_BYTES ${CLEBSCH_VECTOR_BYTES_${isa}}
#define CLEBSCH_LOOPS ${name}_${isa}
#include \"${header}\"
")
    set_source_files_properties(${file} PROPERTIES
      COMPILE_OPTIONS "-O3;-fno-math-errno;-ffp-contract=fast;${CLEBSCH_VECTOR_OPTIONS_${isa}}")
    target_sources(${target} PRIVATE ${file})
  endforeach()
endfunction()
