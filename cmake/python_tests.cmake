# The tests of analysis/ as one ctest test. FWHT_PYTHON names the interpreter (./testbed passes its own); without a
# Python that has the packages of analysis/requirements.txt the test is there and skipped, with the reason.
if(FWHT_TESTS)
  set(FWHT_PYTHON "" CACHE FILEPATH "Python with the packages of analysis/requirements.txt")
  set(python "${FWHT_PYTHON}")
  if(NOT python)
    set(python python3)
  endif()
  execute_process(COMMAND ${python} -c "import jinja2, matplotlib, numpy, pandas, pytest"
    RESULT_VARIABLE missing OUTPUT_QUIET ERROR_QUIET)
  if(missing)
    add_test(NAME analysis COMMAND ${CMAKE_COMMAND} -E echo
      "skipped: ${python} lacks packages of analysis/requirements.txt; ./testbed test installs them")
    set_tests_properties(analysis PROPERTIES SKIP_REGULAR_EXPRESSION "^skipped: ")
  else()
    set(sweep)  # one test has it write a results folder
    if(TARGET fwht_sweep)
      set(sweep FWHT_SWEEP_PROGRAM=$<TARGET_FILE:fwht_sweep>)
    endif()
    add_test(NAME analysis COMMAND ${CMAKE_COMMAND} -E env ${sweep} ${python} -m pytest -q -p no:cacheprovider analysis
      WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  endif()
  set_tests_properties(analysis PROPERTIES LABELS host TIMEOUT 600)
endif()
