# build_info.hpp: what was built. Made anew at every build, rewritten only when its content changes.
set(FWHT_GENERATED ${PROJECT_BINARY_DIR}/generated)
string(TOUPPER "${CMAKE_BUILD_TYPE}" build_type_upper)
set(fwht_cuda_description "none: ${FWHT_WHY_NO_CUDA}")
set(fwht_cuda_flags "")
if(FWHT_WITH_CUDA)
  set(fwht_cuda_description "nvcc ${CMAKE_CUDA_COMPILER_VERSION}")
  string(REPLACE ";" " " fwht_architectures "${CMAKE_CUDA_ARCHITECTURES}")
  set(fwht_cuda_flags "${CMAKE_CUDA_FLAGS} ${CMAKE_CUDA_FLAGS_${build_type_upper}} architectures ${fwht_architectures}")
endif()
add_custom_target(fwht_build_info
  COMMAND ${CMAKE_COMMAND}
    -D "source_dir=${PROJECT_SOURCE_DIR}" -D "output=${FWHT_GENERATED}/build_info.hpp" -D "version=${PROJECT_VERSION}"
    -D "build_type=${CMAKE_BUILD_TYPE}" -D "cxx=${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}"
    -D "cxx_flags=${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${build_type_upper}}"
    -D "cuda=${fwht_cuda_description}" -D "cuda_flags=${fwht_cuda_flags}"
    -P ${CMAKE_CURRENT_LIST_DIR}/write_build_info.cmake
  BYPRODUCTS ${FWHT_GENERATED}/build_info.hpp
  COMMENT "Recording what is built" VERBATIM)
