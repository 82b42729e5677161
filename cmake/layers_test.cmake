# cmake -DROOT=... -DSCRATCH=... -P layers_test.cmake: layers.cmake passes for this tree, and fails for a tree with one
# include that runs upwards, or of fmt in the library.
cmake_minimum_required(VERSION 3.25)

function(run_layers root expected)
  execute_process(COMMAND ${CMAKE_COMMAND} -DROOT=${root} -P ${CMAKE_CURRENT_LIST_DIR}/layers.cmake
    RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(result EQUAL 0 AND expected STREQUAL "passes")
    return()
  elseif(NOT result EQUAL 0 AND expected STREQUAL "fails")
    return()
  endif()
  message(FATAL_ERROR "layers.cmake on ${root} should have been one that ${expected}:\n${output}")
endfunction()

run_layers(${ROOT} passes)
foreach(planted "common/a.hpp;variants/variant.hpp" "reference/a.cpp;variants/registry.hpp" "variants/v/v.cu;reference/inputs.hpp"
                "variants/v/v_test.cpp;experiments/harness/grid.hpp" "experiments/e/e.cpp;analysis/x.hpp" "common/a.cpp;fmt/format.h"
                "variants/v/v.cpp;fmt/format.h")
  list(GET planted 0 file)
  list(GET planted 1 include)
  file(REMOVE_RECURSE ${SCRATCH})
  file(WRITE ${SCRATCH}/${file} "#include \"${include}\"\n")
  run_layers(${SCRATCH} fails)
endforeach()
file(REMOVE_RECURSE ${SCRATCH})
file(WRITE ${SCRATCH}/variants/v/v_test.cpp "#include <fmt/format.h>\n#include \"reference/inputs.hpp\"\n")
run_layers(${SCRATCH} passes)

# A part of a test may; a source that is none may not include it.
file(REMOVE_RECURSE ${SCRATCH})
file(WRITE ${SCRATCH}/variants/v/host_v.hpp "// For tests: v on the host.\n#include \"reference/inputs.hpp\"\n")
file(WRITE ${SCRATCH}/variants/v/host_v.cpp "#include \"variants/v/host_v.hpp\"\n#include \"reference/inputs.hpp\"\n")
run_layers(${SCRATCH} passes)
file(WRITE ${SCRATCH}/variants/v/v.cpp "#include \"variants/v/v.hpp\"\n#include \"variants/v/host_v.hpp\"\n")
run_layers(${SCRATCH} fails)
file(REMOVE_RECURSE ${SCRATCH})
