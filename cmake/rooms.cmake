# One target per room of src/. What a room may link is read from src/LAYERS, so that the two cannot differ.
# A room's .cpp files are found by name; a room without any is an interface.
file(STRINGS ${CMAKE_SOURCE_DIR}/src/LAYERS ORTHANT_LAYERS REGEX "^[a-z]+:")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/LAYERS)

# The headers that nearly every file includes are read once. OpenMP is on for all, since both must agree.
# g++ 12 takes what it inlines from a precompiled header for the project's own code and warns of it; clang, which builds the
# fuzzers, knows none of these options.
set(ORTHANT_GNU "$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>")
function(orthant_read_headers_once target)
  add_library(${target} OBJECT ${CMAKE_SOURCE_DIR}/src/base/headers.cpp)
  target_link_libraries(${target} PRIVATE fmt::fmt OpenMP::OpenMP_CXX Threads::Threads ${ARGN})
  target_compile_options(${target} PRIVATE "$<${ORTHANT_GNU}:-fpch-preprocess>")
  target_precompile_headers(${target} PRIVATE <fmt/core.h> <algorithm> <array> <cmath> <cstdint> <functional> <map>
                            <memory> <span> <string> <string_view> <utility> <vector>)
  # What ccache takes for the contents of the precompiled header, which differ from folder to folder.
  file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/${target}.dir/cmake_pch.hxx.gch.sum
       "${target} ${CMAKE_CXX_COMPILER_VERSION} ${CMAKE_BUILD_TYPE} ${CMAKE_CXX_FLAGS} ${ORTHANT_SANITIZE} ${fmt_VERSION} ${GTest_VERSION} ${nlohmann_json_VERSION}")
endfunction()
function(orthant_uses_headers target headers)
  target_link_libraries(${target} PRIVATE OpenMP::OpenMP_CXX)
  target_compile_options(${target} PRIVATE
    "$<${ORTHANT_GNU}:-fpch-preprocess;-Wno-array-bounds;-Wno-stringop-overflow;-Wno-restrict>")
  target_precompile_headers(${target} REUSE_FROM ${headers})
endfunction()

function(orthant_rooms)
  orthant_read_headers_once(orthant_headers)
  foreach(line IN LISTS ORTHANT_LAYERS)
    string(REGEX MATCH "^[a-z]+" room "${line}")
    string(REGEX REPLACE "^[a-z]+:" "" below "${line}")
    separate_arguments(below UNIX_COMMAND "${below}")
    list(TRANSFORM below PREPEND orthant_)
    file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${room}/*.cpp)
    list(FILTER sources EXCLUDE REGEX "/cli/main\\.cpp$")
    if(NOT OPENMPI_FOUND)
      list(FILTER sources EXCLUDE REGEX "/comm/mpi/")
    endif()
    if(NOT ORTHANT_HAS_NCCL)
      list(FILTER sources EXCLUDE REGEX "/comm/nccl/")
    endif()
    if(ORTHANT_HAS_CUDA)
      file(GLOB kernels CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${room}/cuda/*.cu)
      list(APPEND sources ${kernels})
    else()
      list(FILTER sources EXCLUDE REGEX "/src/${room}/cuda(/|_[a-z_]+\\.cpp$)")
    endif()
    if(sources)
      add_library(orthant_${room} STATIC ${sources})
      target_include_directories(orthant_${room} PUBLIC ${CMAKE_SOURCE_DIR}/src)
      target_link_libraries(orthant_${room} PUBLIC ${below} fmt::fmt Threads::Threads)
      orthant_uses_headers(orthant_${room} orthant_headers)
    else()
      add_library(orthant_${room} INTERFACE)
      target_include_directories(orthant_${room} INTERFACE ${CMAKE_SOURCE_DIR}/src)
      target_link_libraries(orthant_${room} INTERFACE ${below} fmt::fmt Threads::Threads)
    endif()
  endforeach()
endfunction()

# Links a library of others to one room, privately: its headers stay inside that room.
function(orthant_room_uses room)
  get_target_property(type orthant_${room} TYPE)
  if(NOT type STREQUAL "INTERFACE_LIBRARY")
    target_link_libraries(orthant_${room} PRIVATE ${ARGN})
  endif()
endfunction()
