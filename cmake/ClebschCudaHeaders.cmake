# CUDA's headers for clebsch_model, no toolkit: CUDA graphs in memory of their own need them (src/model/device/cuda_graph.cpp).
# Two packages bring them: torch's CUDA runtime, and nvidia-cuda-crt, which torch does not ask for.
if(NOT EXISTS ${TORCH_DIR}/include/c10/cuda/CUDACachingAllocator.h)
  message(STATUS "This torch has no CUDA: steps on a GPU are not recorded as CUDA graphs")
  return()
endif()
get_filename_component(_torch ${TORCH_DIR} REALPATH)
clebsch_python_package(_nvidia nvidia)
file(GLOB _cuda_headers ${_torch}/../nvidia/*/include ${_nvidia}/*/include)
foreach(_header cuda_runtime_api.h crt/host_config.h)
  string(MAKE_C_IDENTIFIER "CLEBSCH_HEADERS_${_header}" _found)
  find_path(${_found} ${_header} PATHS ${_cuda_headers} NO_DEFAULT_PATH)
  find_path(${_found} ${_header} PATHS /usr/local/cuda/include)
  mark_as_advanced(${_found})
  if(${_found})
    target_include_directories(clebsch_model SYSTEM PRIVATE ${${_found}})
  else()
    # A wheel goes to other machines: it must not be slower there without a word.
    set(_severity WARNING)
    if(SKBUILD)
      set(_severity FATAL_ERROR)
    endif()
    message(${_severity} "No ${_header} found: steps on a GPU would not be recorded as CUDA graphs. Expected it in one of "
                         "'${_cuda_headers}' or in /usr/local/cuda/include. Install the Python packages nvidia-cuda-runtime "
                         "and nvidia-cuda-crt of the CUDA release of torch ${CLEBSCH_TORCH_VERSION}.")
  endif()
endforeach()
