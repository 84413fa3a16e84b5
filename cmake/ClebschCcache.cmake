# Compiles through ccache when it is installed. A launcher that the user names (CMAKE_CXX_COMPILER_LAUNCHER) is kept.
find_program(CLEBSCH_CCACHE_PROGRAM ccache)
if(CLEBSCH_CCACHE AND CLEBSCH_CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # ccache takes no file with a precompiled header unless it may ignore the macros that such a header hides from it.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros
                                  ${CLEBSCH_CCACHE_PROGRAM})
endif()
