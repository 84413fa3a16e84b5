# nlohmann_json::nlohmann_json: the headers of Python's package nlohmann-json, or else the machine's.
clebsch_python_package(_package nlohmann_json)
if(EXISTS ${_package}/include/nlohmann/json.hpp)
  add_library(nlohmann_json::nlohmann_json INTERFACE IMPORTED)
  target_include_directories(nlohmann_json::nlohmann_json SYSTEM INTERFACE ${_package}/include)
else()
  find_package(nlohmann_json REQUIRED)
endif()
