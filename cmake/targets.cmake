# fwht_library(name sources...)   a static library of this project, with its warnings
# fwht_test(name LABEL host|gpu|host+gpu SOURCES ... LIBRARIES ...)   a GoogleTest program; every case a ctest test.
#   host+gpu: cases with "Gpu" in their suite's name carry the label gpu, all others host
# fwht_variant(name [CUDA] [SOURCES extra...] [PLANS make_plan...])   one folder of variants/

set(FWHT_WARNINGS -Wall -Wextra -Wshadow -Wnon-virtual-dtor)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 14)
  # GCC 13 takes a reference into what a temporary std::span shows for one into the span itself; GCC 14 does not.
  list(APPEND FWHT_WARNINGS -Wno-dangling-reference)
endif()
if(FWHT_WERROR)
  list(APPEND FWHT_WARNINGS -Werror)
endif()

function(fwht_warnings target)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:${FWHT_WARNINGS}>)
  if(FWHT_WITH_CUDA)
    target_compile_options(${target} PRIVATE
      $<$<COMPILE_LANGUAGE:CUDA>:-lineinfo -Xptxas=-warn-spills,-warn-lmem-usage>
      $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${FWHT_WERROR}>>:-Werror=cross-execution-space-call,reorder>)
  endif()
endfunction()

function(fwht_library name)
  add_library(${name} STATIC ${ARGN})
  target_include_directories(${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
  target_compile_features(${name} PUBLIC cxx_std_20)
  target_link_libraries(${name} PRIVATE $<BUILD_INTERFACE:fmt::fmt-header-only>)
  fwht_warnings(${name})
endfunction()

function(fwht_test name)
  cmake_parse_arguments(arg "" "LABEL;TIMEOUT" "SOURCES;LIBRARIES" ${ARGN})
  if(NOT FWHT_TESTS)
    return()
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_LIBRARIES} fmt::fmt-header-only GTest::gtest_main)
  fwht_warnings(${name})
  # PRE_TEST: the list of cases is asked for when ctest runs, so a program that needs a driver to load still builds.
  set(host_filter "*")
  set(gpu_filter "*")
  if(arg_LABEL STREQUAL "host+gpu")
    set(host_filter "-*Gpu*.*:*Gpu*/*")
    set(gpu_filter "*Gpu*.*:*Gpu*/*")
  endif()
  string(REPLACE "+" ";" labels ${arg_LABEL})
  foreach(label IN LISTS labels)
    gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60 TEST_FILTER "${${label}_filter}"
      PROPERTIES LABELS ${label} TIMEOUT ${arg_TIMEOUT})
  endforeach()
endfunction()

# variants/<name>/<name>.cpp holds the variant (host code: supports, geometry); <name>.cu, with CUDA, the kernels and
# make_plan. In a build without CUDA a make_plan that throws takes the place of <name>.cu, so the variant stays listed.
# Every variants/<name>/*_test.cpp becomes a host test program. PLANS names the functions where a folder has several.
function(fwht_variant name)
  cmake_parse_arguments(arg "CUDA" "" "SOURCES;PLANS" ${ARGN})
  set(sources ${name}/${name}.cpp ${arg_SOURCES})
  if(arg_CUDA AND FWHT_WITH_CUDA)
    list(APPEND sources ${name}/${name}.cu)
  elseif(arg_CUDA)
    set(variant_name ${name})
    if(NOT arg_PLANS)
      set(arg_PLANS make_plan)
    endif()
    set(variant_plans "")
    foreach(plan IN LISTS arg_PLANS)
      string(APPEND variant_plans "std::unique_ptr<Plan> ${plan}(const Problem&, const DeviceInfo&) { missing(); }\n")
    endforeach()
    configure_file(${PROJECT_SOURCE_DIR}/cmake/variant_without_cuda.cpp.in ${FWHT_GENERATED}/${name}_without_cuda.cpp @ONLY)
    list(APPEND sources ${FWHT_GENERATED}/${name}_without_cuda.cpp)
  endif()
  target_sources(fwht_variants PRIVATE ${sources})
  file(GLOB tests CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*_test.cpp)
  foreach(test IN LISTS tests)
    get_filename_component(stem ${test} NAME_WE)
    fwht_test(${stem} LABEL host SOURCES ${test} LIBRARIES fwht_variants fwht_reference)
  endforeach()
endfunction()
