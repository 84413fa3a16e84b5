# clebsch_flags: an interface target with the warnings and sanitizers of every target of ours.
add_library(clebsch_flags INTERFACE)
target_compile_options(clebsch_flags INTERFACE -Wall -Wextra $<$<BOOL:${CLEBSCH_WERROR}>:-Werror>)
if(CLEBSCH_SANITIZE)
  target_compile_options(clebsch_flags INTERFACE -fsanitize=address,undefined -fno-omit-frame-pointer
                                                 -fno-sanitize-recover=undefined)
  target_link_options(clebsch_flags INTERFACE -fsanitize=address,undefined)
endif()
