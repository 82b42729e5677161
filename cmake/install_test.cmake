# Tests of what stands outside the programs: install + find_package(fwht), proven by a project of its own
# (consumer_test/), a variant made from variants/skeleton (skeleton_test.cmake), that no include runs upwards (layers.cmake),
# and what configuring leaves and records where fwht is not alone (build_files_test.cmake).
if(FWHT_TESTS)
  add_test(NAME install.consumer
    COMMAND ${CMAKE_COMMAND}
      -D build_dir=${PROJECT_BINARY_DIR} -D work_dir=${PROJECT_BINARY_DIR}/consumer_test
      -D generator=${CMAKE_GENERATOR} -D build_type=${CMAKE_BUILD_TYPE}
      -D cxx=${CMAKE_CXX_COMPILER} -D "cxx_flags=${CMAKE_CXX_FLAGS}" -D "cuda_root=${CUDAToolkit_TARGET_DIR}"
      -P ${PROJECT_SOURCE_DIR}/cmake/consumer_test/run.cmake)
  if(FWHT_EXPERIMENTS)  # it sweeps too
    include(skeleton_test)
  endif()
  add_test(NAME layers COMMAND ${CMAKE_COMMAND} -D ROOT=${PROJECT_SOURCE_DIR} -D SCRATCH=${PROJECT_BINARY_DIR}/layers_test
    -P ${PROJECT_SOURCE_DIR}/cmake/layers_test.cmake)
  add_test(NAME build_files COMMAND ${CMAKE_COMMAND}
      -D ROOT=${PROJECT_SOURCE_DIR} -D SCRATCH=${PROJECT_BINARY_DIR}/build_files_test
      -D generator=${CMAKE_GENERATOR} -D cxx=${CMAKE_CXX_COMPILER} -P ${PROJECT_SOURCE_DIR}/cmake/build_files_test.cmake)
  set_tests_properties(install.consumer layers build_files PROPERTIES LABELS host TIMEOUT 300)
endif()
