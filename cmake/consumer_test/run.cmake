# Installs the build tree to an empty prefix, then configures, builds and runs the consumer against it.
# cmake -D build_dir= -D work_dir= -D generator= -D build_type= -D cxx= -D cxx_flags= [-D cuda_root=] -P run.cmake
file(REMOVE_RECURSE ${work_dir})
set(prefix ${work_dir}/prefix)

function(step name)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE failed OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(failed)
    message(FATAL_ERROR "${name} failed (${failed}):\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

step(install ${CMAKE_COMMAND} --install ${build_dir} --prefix ${prefix})
# The public headers, the C interface, and nothing else.
include(${CMAKE_CURRENT_LIST_DIR}/../public_headers.cmake)
list(TRANSFORM FWHT_PUBLIC_HEADERS REPLACE ".*/" "include/fwht/" OUTPUT_VARIABLE expected)
file(GLOB_RECURSE installed RELATIVE ${prefix} ${prefix}/include/*)
list(APPEND expected include/fwht.h)
list(SORT expected)
list(SORT installed)
if(NOT installed STREQUAL expected)
  message(FATAL_ERROR "installed headers: ${installed}\nexpected: ${expected}")
endif()

step(configure ${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR} -B ${work_dir}/build -G ${generator}
  -D CMAKE_BUILD_TYPE=${build_type} -D CMAKE_CXX_COMPILER=${cxx} -D CMAKE_CXX_FLAGS=${cxx_flags}
  -D CMAKE_PREFIX_PATH=${prefix} -D FWHT_INCLUDE_DIR=${prefix}/include/fwht -D CUDAToolkit_ROOT=${cuda_root})
# An older copy elsewhere on the machine must not stand in for the one just installed.
file(STRINGS ${work_dir}/build/CMakeCache.txt found REGEX "^fwht_DIR:")
string(FIND "${found}" "${prefix}" position)
if(position EQUAL -1)
  message(FATAL_ERROR "find_package(fwht) found another installation: ${found}")
endif()
step(build ${CMAKE_COMMAND} --build ${work_dir}/build)
foreach(program consumer c_consumer pc_consumer)
  if(program STREQUAL "pc_consumer" AND NOT EXISTS ${work_dir}/build/pc_consumer)
    message(STATUS "pkg-config is not installed: fwht.pc was not tried")
    continue()
  endif()
  step(run ${work_dir}/build/${program})
  message(STATUS "${output}")
endforeach()

step("configure as a folder" ${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR}/as_folder -B ${work_dir}/as_folder -G ${generator}
  -D CMAKE_BUILD_TYPE=${build_type} -D CMAKE_CXX_COMPILER=${cxx} -D CMAKE_CXX_FLAGS=${cxx_flags}
  -D FWHT_SOURCE_DIR=${CMAKE_CURRENT_LIST_DIR}/../..)
step("compile as a folder" ${CMAKE_COMMAND} --build ${work_dir}/as_folder --target consumer)
