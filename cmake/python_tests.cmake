# The tests of analysis/, one ctest test a file. FWHT_PYTHON names the interpreter (./testbed passes its own); without a
# Python that has the packages of analysis/requirements*.txt one test stands for them, skipped with the reason.
if(FWHT_TESTS)
  set(FWHT_PYTHON "" CACHE FILEPATH "Python with the packages of analysis/requirements.txt and requirements-test.txt")
  set(python "${FWHT_PYTHON}")
  if(NOT python)
    set(python python3)
  endif()
  set(requirements ${PROJECT_SOURCE_DIR}/analysis/requirements.txt ${PROJECT_SOURCE_DIR}/analysis/requirements-test.txt)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${requirements})
  execute_process(COMMAND ${python} ${PROJECT_SOURCE_DIR}/cmake/has_requirements.py ${requirements}
    RESULT_VARIABLE missing OUTPUT_VARIABLE why OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(missing)
    add_test(NAME analysis COMMAND ${CMAKE_COMMAND} -E echo
      "skipped: ${python} lacks packages of analysis/requirements.txt (${why}); ./testbed test installs them")
    set_tests_properties(analysis PROPERTIES LABELS host SKIP_REGULAR_EXPRESSION "^skipped: ")
  else()
    set(sweep)  # one test has it write a results folder
    if(TARGET fwht_sweep)
      set(sweep FWHT_SWEEP_PROGRAM=$<TARGET_FILE:fwht_sweep>)
    endif()
    file(GLOB files RELATIVE ${PROJECT_SOURCE_DIR} CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/analysis/test_*.py)
    foreach(file IN LISTS files)
      get_filename_component(stem ${file} NAME_WE)
      string(REGEX REPLACE "^test_" "" stem ${stem})
      add_test(NAME analysis.${stem}
        COMMAND ${CMAKE_COMMAND} -E env ${sweep} FWHT_SCREENSHOTS=${CMAKE_BINARY_DIR}/screenshots ${python} -m pytest -q -rs -p no:cacheprovider ${file}
        WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
      set_tests_properties(analysis.${stem} PROPERTIES LABELS host TIMEOUT 1800)
    endforeach()
  endif()
  if(FWHT_WITH_CUDA AND "${CMAKE_CUDA_ARCHITECTURES}" MATCHES "90a")
    add_test(NAME machine_code COMMAND ${python} ${PROJECT_SOURCE_DIR}/cmake/machine_code_test.py $<TARGET_FILE:fwht_variants> $<TARGET_FILE:fwht_linear>)
    set_tests_properties(machine_code PROPERTIES LABELS host TIMEOUT 1200 SKIP_RETURN_CODE 77 COST 150)  # the longest starts first
  endif()
  add_test(NAME requirements.lock COMMAND python3 ${PROJECT_SOURCE_DIR}/cmake/lock_test.py ${PROJECT_SOURCE_DIR}/analysis)
  set_tests_properties(requirements.lock PROPERTIES LABELS host)
endif()
