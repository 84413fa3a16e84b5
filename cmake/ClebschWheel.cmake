# What the Python wheel has beside the package's Python files: the install component `wheel` (pyproject.toml), so that one
# build folder serves the wheel and `cmake --install`. All of it lies in clebsch/, whose neighbour is torch/.
set(_wheel COMPONENT wheel EXCLUDE_FROM_ALL)
clebsch_install_library(clebsch/ clebsch-wheel ${_wheel})
set(_wheel_files lib/libclebsch.so)
add_custom_target(clebsch_wheel DEPENDS clebsch)

if(CLEBSCH_MULTILINEAR)
  install(TARGETS clebsch_multilinear LIBRARY DESTINATION clebsch/lib ${_wheel})
  list(APPEND _wheel_files lib/libclebsch_multilinear.so)
  add_dependencies(clebsch_wheel clebsch_multilinear)
endif()

if(CLEBSCH_LAMMPS)
  # LAMMPS takes every *plugin.so of this folder (clebsch_lammps.py) for a plugin; other libraries may lie beside them.
  install(TARGETS clebschplugin clebsch_lammps LIBRARY DESTINATION clebsch/lammps ${_wheel})
  list(APPEND _wheel_files lammps/libclebsch_lammps.so) # the plugin itself links nothing of ours
  add_dependencies(clebsch_wheel clebschplugin clebsch_lammps)
endif()

file(GLOB _models CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/models/*.pt ${PROJECT_SOURCE_DIR}/models/*.md)
install(FILES ${_models} DESTINATION clebsch/models ${_wheel})

# The files that were just installed carry the RPATH of `cmake --install`, with torch's place on this machine.
install(CODE "set(_wheel_files \"${_wheel_files}\")" ${_wheel})
install(CODE [[
  foreach(_file IN LISTS _wheel_files)
    file(RPATH_SET FILE "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/clebsch/${_file}"
         NEW_RPATH "$ORIGIN/../lib:$ORIGIN/../../torch/lib")
  endforeach()
]] ${_wheel})
