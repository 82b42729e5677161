# Leaves fwht_simd_rows(target): the rows of this folder, compiled once per instruction set of the processor, as sources of
# a target of the calling folder.
set(fwht_simd_folder ${CMAKE_CURRENT_LIST_DIR})

function(fwht_simd_rows target)
  set(levels baseline)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
    list(APPEND levels x86_64_v3 x86_64_v4)
  endif()
  foreach(level IN LISTS levels)
    set(source ${CMAKE_CURRENT_BINARY_DIR}/rows_${level}.cpp)
    file(CONFIGURE OUTPUT ${source} @ONLY CONTENT [[
#define FWHT_ROWS_NAMESPACE @level@
#include "variants/kit/simd/rows.cpp"
]])
    set(options -O3)  # without it functions of headers would not be inlined
    if(NOT level STREQUAL "baseline")
      string(REGEX REPLACE "x86_64_v" "-march=x86-64-v" march ${level})
      list(APPEND options ${march})
    endif()
    set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${options}")
    target_sources(${target} PRIVATE ${source})
  endforeach()
  target_sources(${target} PRIVATE ${fwht_simd_folder}/best_rows.cpp)
endfunction()
