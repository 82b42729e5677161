# Tests of what stands outside the programs: install + find_package(fwht), proven by a project of its own
# (consumer_test/), a variant made from variants/skeleton (skeleton_test.cmake), and that no include runs upwards
# (layers.cmake).
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
  set_tests_properties(install.consumer layers PROPERTIES LABELS host TIMEOUT 300)
endif()
