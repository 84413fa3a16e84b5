# clebsch_python(<variable>): the Python whose packages count: that of CLEBSCH_PREFIX, the one that builds the wheel
# (scikit-build-core names it), that of the checkout, or the one in PATH.
function(clebsch_python variable)
  if(CLEBSCH_PREFIX)
    set(${variable} ${CLEBSCH_PREFIX}/bin/python PARENT_SCOPE)
  elseif(SKBUILD AND Python_EXECUTABLE)
    set(${variable} ${Python_EXECUTABLE} PARENT_SCOPE)
  elseif(EXISTS ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/../.venv/bin/python)
    set(${variable} ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/../.venv/bin/python PARENT_SCOPE)
  else()
    set(${variable} python3 PARENT_SCOPE)
  endif()
endfunction()

# clebsch_python_package(<variable> <package>): the folder of an installed package of that Python, found without importing
# it; empty when there is none.
function(clebsch_python_package variable package)
  clebsch_python(python)
  execute_process(
    COMMAND ${python} -c "import importlib.util as u; print(u.find_spec('${package}').submodule_search_locations[0])"
    OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  set(${variable} "${found}" PARENT_SCOPE)
endfunction()
