# What variants/skeleton/README.md asks for, done in copies: three lines and the golden row. The edited registry takes the
# place of this build's in three programs, made from the objects of registry_test, conformance_test and fwht_sweep.
set(copies ${PROJECT_BINARY_DIR}/skeleton_test)

# One line in front of the only line that contains `before`.
function(skeleton_line file before line)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${file})
  file(READ ${PROJECT_SOURCE_DIR}/${file} text)
  string(FIND "${text}" "${before}" first)
  string(FIND "${text}" "${before}" last REVERSE)
  if(first EQUAL -1 OR NOT first EQUAL last)
    message(FATAL_ERROR "${file} does not contain '${before}' once: cmake/skeleton_test.cmake and variants/skeleton/README.md are out of date")
  endif()
  string(REPLACE "${before}" "${line}\n${before}" text "${text}")
  file(CONFIGURE OUTPUT ${copies}/${file} CONTENT "${text}" @ONLY)
endfunction()

skeleton_line(variants/registry.hpp "// clang-format on" "namespace skeleton { extern const Variant variant; }")
skeleton_line(variants/registry.cpp "    &automatic::variant," "    &skeleton::variant,")
skeleton_line(variants/CMakeLists.txt "fwht_variant(auto " "fwht_variant(skeleton)")
skeleton_line(variants/registry_test.cpp "  {\"auto\",          kF16Bf16,"
  "  {\"skeleton\", kF16Bf16F32, {2, k2To16}, {2, k2To16}, {2, k2To16}, 1},")

add_library(fwht_skeleton OBJECT ${copies}/variants/registry.cpp ${PROJECT_SOURCE_DIR}/variants/skeleton/skeleton.cpp)
add_executable(skeleton_registry_test ${copies}/variants/registry_test.cpp)
add_executable(skeleton_conformance_test $<TARGET_OBJECTS:conformance_test>)
add_executable(skeleton_sweep $<TARGET_OBJECTS:fwht_sweep>)
set(libraries fwht_variants fwht_conformance fwht_test_main fmt::fmt-header-only)
target_link_libraries(fwht_skeleton PUBLIC ${libraries})
target_link_libraries(skeleton_sweep PRIVATE fwht_sweep_parts fwht_harness CLI11::CLI11)
foreach(target fwht_skeleton skeleton_registry_test skeleton_conformance_test skeleton_sweep)
  target_include_directories(${target} BEFORE PRIVATE ${copies})
  target_compile_options(${target} PRIVATE -O1)
  set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX)
  if(NOT target STREQUAL "fwht_skeleton")
    target_link_libraries(${target} PRIVATE fwht_skeleton ${libraries})
  endif()
endforeach()

add_test(NAME skeleton.golden_table COMMAND skeleton_registry_test)
# Every check in one dtype; every access pattern in the others.
add_test(NAME skeleton.conformance COMMAND skeleton_conformance_test
  --gtest_filter=ConformanceHost.skeleton/f16/*:SanitizeHost.skeleton/*:ConformanceCoverage.Every*)
add_test(NAME skeleton.sweep COMMAND sh -c [[rm -rf "$2" && "$1" --variant skeleton --problem f16/n128/r64 --output "$2" &&
  grep -q "^skeleton," "$2/results.csv"]] sh $<TARGET_FILE:skeleton_sweep> ${copies}/results)
set_tests_properties(skeleton.golden_table skeleton.conformance skeleton.sweep PROPERTIES LABELS host TIMEOUT 300)
