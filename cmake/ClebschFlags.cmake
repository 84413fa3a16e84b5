# clebsch_flags: an interface target with the warnings and sanitizers of every target of ours.
add_library(clebsch_flags INTERFACE)
target_compile_options(clebsch_flags INTERFACE -Wall -Wextra $<$<BOOL:${CLEBSCH_WERROR}>:-Werror>)
if(CLEBSCH_SANITIZE)
  target_compile_options(clebsch_flags INTERFACE -fsanitize=address,undefined -fno-omit-frame-pointer
                                                 -fno-sanitize-recover=undefined)
  target_link_options(clebsch_flags INTERFACE -fsanitize=address,undefined)
endif()

# clebsch_not_hot: for code that checks, dispatches and hands on, most of it torch's templates. What takes time in a step lies
# in src/cpu and in the GPU's kernels, so further optimization costs a third of the compile time and gains nothing.
add_library(clebsch_not_hot INTERFACE)
target_compile_options(clebsch_not_hot INTERFACE $<$<CONFIG:Release>:-O1>)
