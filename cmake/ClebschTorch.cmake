# clebsch_torch: an interface target for the CPU side of a pip torch.
#
# find_package(Torch) is not used on purpose: with a CUDA build of torch it insists on a CUDA toolkit, and it links
# libtorch, which pulls in libtorch_cuda and twenty CUDA libraries. libtorch_cpu and libc10 are all the CPU path needs.
if(NOT TORCH_DIR)
  if(Torch_DIR)
    get_filename_component(TORCH_DIR "${Torch_DIR}/../../.." ABSOLUTE)
  else()
    clebsch_python_package(TORCH_DIR torch)
  endif()
endif()
if(NOT EXISTS ${TORCH_DIR}/include/torch/csrc/api/include/torch/torch.h)
  message(FATAL_ERROR "No torch found. Expected TORCH_DIR to name a torch installation with include/ and lib/, got "
                      "'${TORCH_DIR}'. Pass -DTORCH_DIR=<site-packages>/torch, or run scripts/quickstart.")
endif()
file(READ ${TORCH_DIR}/version.py _version)
string(REGEX MATCH "__version__ = '([0-9]+\\.[0-9]+\\.[0-9]+)" _ "${_version}")
set(CLEBSCH_TORCH_VERSION ${CMAKE_MATCH_1})
message(STATUS "torch ${CLEBSCH_TORCH_VERSION} in ${TORCH_DIR}")

add_library(clebsch_torch INTERFACE)
target_include_directories(clebsch_torch SYSTEM INTERFACE ${TORCH_DIR}/include
                                                         ${TORCH_DIR}/include/torch/csrc/api/include)
# Messages of torch's assertions name its headers, not their place on the machine that compiled them. (What is in this
# checkout, clebsch_flags shortens.)
get_filename_component(_site ${TORCH_DIR} DIRECTORY)
cmake_path(IS_PREFIX PROJECT_SOURCE_DIR ${_site} NORMALIZE _in_checkout)
if(NOT _in_checkout)
  target_compile_options(clebsch_torch INTERFACE -fmacro-prefix-map=${_site}/=)
endif()
target_link_libraries(clebsch_torch INTERFACE ${TORCH_DIR}/lib/libtorch_cpu.so ${TORCH_DIR}/lib/libc10.so)
target_compile_definitions(clebsch_torch INTERFACE CLEBSCH_TORCH_VERSION="${CLEBSCH_TORCH_VERSION}")
