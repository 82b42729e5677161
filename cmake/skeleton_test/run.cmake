# Adds variants/skeleton to a copy of the tree, as somebody who adds a variant would: one folder, three lines, its golden row.
# Then builds the copy's tests and its sweep, and runs them on the new variant.
# cmake -D source_dir= -D work_dir= -D generator= -D cxx= -D flags= -D launcher= -P run.cmake
cmake_minimum_required(VERSION 3.25)
set(tree ${work_dir}/tree)
set(build ${tree}/build/host)

function(step name)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE failed OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(failed)
    message(FATAL_ERROR "${name} failed (${failed}):\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

# One line in front of the only line that contains `before`.
function(add_line file before line)
  file(STRINGS ${tree}/${file} lines)
  file(READ ${tree}/${file} text)
  string(FIND "${text}" "${before}" first)
  string(FIND "${text}" "${before}" last REVERSE)
  if(first EQUAL -1 OR NOT first EQUAL last)
    message(FATAL_ERROR "${file} does not contain '${before}' once: this test and variants/skeleton/README.md are out of date")
  endif()
  string(REPLACE "${before}" "${line}\n${before}" text "${text}")
  file(WRITE ${tree}/${file} "${text}")
endfunction()

# The build folder of an earlier run stays: copies keep their time stamps, and unchanged files are not compiled again.
foreach(part CMakeLists.txt CMakePresets.json LICENSE testbed pyproject.toml cmake common reference variants experiments analysis
    docs python)
  file(REMOVE_RECURSE ${tree}/${part})
  if(IS_DIRECTORY ${source_dir}/${part})
    file(COPY ${source_dir}/${part} DESTINATION ${tree} PATTERN results EXCLUDE)
  elseif(EXISTS ${source_dir}/${part})
    file(COPY ${source_dir}/${part} DESTINATION ${tree})
  endif()
endforeach()

add_line(variants/registry.hpp "// clang-format on" "namespace skeleton { extern const Variant variant; }")
add_line(variants/registry.cpp "    &automatic::variant," "    &skeleton::variant,")
add_line(variants/CMakeLists.txt "fwht_variant(auto " "fwht_variant(skeleton)")
add_line(variants/registry_test.cpp "  {\"auto\",          kF16Bf16,"
  "  {\"skeleton\", kF16Bf16F32, {2, k2To16}, {2, k2To16}, {2, k2To16}, 1},")

# ccache, where it is: what the edits leave alone may then be compiled already.
set(ENV{CCACHE_BASEDIR} ${tree})
set(ENV{CCACHE_NOHASHDIR} 1)
step(configure ${CMAKE_COMMAND} -S ${tree} -B ${build} -G ${generator} -D CMAKE_CXX_COMPILER=${cxx}
  -D CMAKE_CXX_COMPILER_LAUNCHER=${launcher} -D CMAKE_BUILD_TYPE=Release "-DCMAKE_CXX_FLAGS_RELEASE=${flags}"
  -D FWHT_CUDA=OFF -D FWHT_KOKKOS=OFF)
step(build ${CMAKE_COMMAND} --build ${build} --parallel 2 --target registry_test conformance_test fwht_sweep)

step("golden table" ${build}/variants/registry_test)
# Every check in one dtype; every access pattern in the others.
step(conformance ${build}/variants/conformance_test
  --gtest_filter=ConformanceHost.skeleton/f16/*:SanitizeHost.skeleton/*:ConformanceCoverage.Every*)
if(NOT output MATCHES "ConformanceHost.skeleton/f16/Emulation" OR output MATCHES "tests? from 0 test suites")
  message(FATAL_ERROR "the conformance suite has no test of the skeleton:\n${output}")
endif()
string(REGEX MATCH "\\[  PASSED  \\][^\n]*" passed "${output}")
file(REMOVE_RECURSE ${work_dir}/results)
step(sweep ${build}/experiments/fwht_sweep --variant skeleton --problem f16/n128/r64 --output ${work_dir}/results)
file(STRINGS ${work_dir}/results/results.csv rows REGEX "skeleton")
list(LENGTH rows count)
if(count EQUAL 0)
  message(FATAL_ERROR "the sweep has no row of the skeleton:\n${output}")
endif()
message(STATUS "skeleton: ${passed} ${count} rows in results.csv")
