# clebsch_for_instruction_sets(<target> <name> <header>): the target gets <header> (a path from src) compiled once for each
# instruction set, baseline, avx2 and avx512, as NAME_SET. The header finds the bytes of a vector in CLEBSCH_VECTOR_BYTES and
# the name of the table that it defines, NAME_SET, in CLEBSCH_LOOPS. baseline is what the compiler makes for any machine.
# src/multilinear/instruction_set.h chooses among the tables at run time.
function(clebsch_for_instruction_sets target name header)
  set(isas baseline)
  set(bytes_baseline 16)
  set(flags_baseline "")
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    list(APPEND isas avx2 avx512)
    set(bytes_avx2 32)
    set(flags_avx2 -mavx2 -mfma)
    set(bytes_avx512 64)
    set(flags_avx512 -mavx512f -mavx512dq -mavx512vl -mavx512bw -mavx2 -mfma -mprefer-vector-width=512)
  endif()
  foreach(isa ${isas})
    set(file ${CMAKE_CURRENT_BINARY_DIR}/${name}_${isa}.cpp)
    file(CONFIGURE OUTPUT ${file} @ONLY CONTENT
"// Made by cmake/ClebschInstructionSets.cmake.
#define CLEBSCH_VECTOR_BYTES ${bytes_${isa}}
#define CLEBSCH_LOOPS ${name}_${isa}
#include \"${header}\"
")
    set_source_files_properties(${file} PROPERTIES
      COMPILE_OPTIONS "-O3;-fno-math-errno;-ffp-contract=fast;${flags_${isa}}")
    target_sources(${target} PRIVATE ${file})
  endforeach()
endfunction()
