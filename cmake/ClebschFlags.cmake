# clebsch_flags: an interface target with the warnings and sanitizers of every target of ours.
add_library(clebsch_flags INTERFACE)
target_compile_options(clebsch_flags INTERFACE -Wall -Wextra $<$<BOOL:${CLEBSCH_WERROR}>:-Werror>
  # __FILE__ in messages names a file of ours, not a folder of the machine that compiled it.
  -fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=)
if(CLEBSCH_SANITIZE)
  target_compile_options(clebsch_flags INTERFACE -fsanitize=address,undefined -fno-omit-frame-pointer
                                                 -fno-sanitize-recover=undefined)
  target_link_options(clebsch_flags INTERFACE -fsanitize=address,undefined)
endif()

# clebsch_cold: for code in which a step spends next to no time: checks, dispatch, tests, most of them torch's and
# gtest's templates. What a step waits for lies in src/core, src/cpu and in the GPU's kernels: at -O3 this
# code compiles for a third longer, and a step of the shipped models takes as long, with the same bits.
add_library(clebsch_cold INTERFACE)
target_compile_options(clebsch_cold INTERFACE $<$<CONFIG:Release>:-O1>)

# clebsch_precompile(<target> <header>...): parses the headers once for all files of the target. Files still include
# what they use: with CLEBSCH_PCH=OFF they compile the same. Headers in <> keep paths of this machine out of the
# precompiled header, so that ccache finds it from any folder.
function(clebsch_precompile target)
  if(NOT CLEBSCH_PCH)
    return()
  endif()
  target_precompile_headers(${target} PRIVATE ${ARGN})
  # ccache reads a file's preprocessed text, where gcc names the precompiled header only when asked to.
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
endfunction()

# clebsch_precompile_as(<target> <other>): with the headers of <other>, whose flags of code generation must be the same
# (-fPIC, -fopenmp): the compiler refuses them otherwise. Torch's headers take half a minute.
function(clebsch_precompile_as target other)
  if(CLEBSCH_PCH)
    target_precompile_headers(${target} REUSE_FROM ${other})
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
  endif()
endfunction()

# clebsch_compile_together(<target> <group> <file>...): one compilation of small files, in which most of the time goes
# to headers (torch's, LAMMPS's, Kokkos's) and what they instantiate, once for all. Names in
# their anonymous namespaces must differ; each file still
# includes what it uses: with CLEBSCH_UNITY=OFF they compile the same.
function(clebsch_compile_together target group)
  if(NOT CLEBSCH_UNITY)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  set_source_files_properties(${ARGN} PROPERTIES UNITY_GROUP ${group})
endfunction()
