# fwht_library(name sources...)   a static library of this project, with its warnings
# fwht_part(name sources...)   a part of what is installed, and fwht_part_links(name libraries...) what it needs. With
#   FWHT_SHARED tests and programs link it as a shared library, so that its code is there once; name_static is the
#   archive of the same objects, for installation and libfwht.so
# fwht_test(name LABEL host|host+gpu SOURCES ... LIBRARIES ... [GPU_FILTER filter] [GPU_SHARDS n])   a GoogleTest program;
#   every case that needs no GPU is a ctest test, by name. host+gpu: the cases with "Gpu" in their suite's name (those of
#   GPU_FILTER) are n ctest tests with the label gpu, <name>.gpu.1 ..., each a share of them in one process
# fwht_gpu_test(name program filter shards)   more such tests of a program
# fwht_variant(name [CUDA] [SOURCES extra...] [KERNELS files.cu...] [INSTANCES files.cu.in...]
#   [PLANS make_plan...] [ON_HOST files.cpp...] [TEST_LABEL host+gpu])   one folder of variants/

set(FWHT_WARNINGS -Wall -Wextra -Wshadow -Wnon-virtual-dtor)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 14)
  # GCC 13 takes a reference into what a temporary std::span shows for one into the span itself; GCC 14 does not.
  list(APPEND FWHT_WARNINGS -Wno-dangling-reference)
  if(CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
    # GCC 13 sees an access behind the end inside fmt 9, where there is none.
    list(APPEND FWHT_WARNINGS -Wno-array-bounds -Wno-stringop-overflow)
  endif()
endif()
if(FWHT_WERROR)
  list(APPEND FWHT_WARNINGS -Werror)
endif()

# Machine code is compressed: mode `size` is read by drivers of CUDA 12.4 and newer. Line numbers for profilers triple it.
option(FWHT_LINE_INFO "Line numbers in machine code, for profilers (preset profile)" OFF)
set(fwht_machine_code --compress-mode=size)
if(FWHT_WITH_CUDA AND CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12.8)
  set(fwht_machine_code -Xfatbin=-compress-all)
endif()
if(FWHT_LINE_INFO)
  list(APPEND fwht_machine_code -lineinfo)
endif()

function(fwht_warnings target)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:${FWHT_WARNINGS}>)
  if(FWHT_WITH_CUDA)
    target_compile_options(${target} PRIVATE
      $<$<COMPILE_LANGUAGE:CUDA>:${fwht_machine_code} -Xptxas=-warn-spills,-warn-lmem-usage>
      $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${FWHT_WERROR}>>:-Werror=cross-execution-space-call,reorder>)
  endif()
endfunction()

function(fwht_library name)
  add_library(${name} STATIC ${ARGN})
  target_include_directories(${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
  target_compile_features(${name} PUBLIC cxx_std_20)
  fwht_warnings(${name})
endfunction()

function(fwht_part name)
  if(NOT FWHT_SHARED)
    fwht_library(${name} ${ARGN})
    add_library(${name}_static ALIAS ${name})
    return()
  endif()
  add_library(${name} SHARED ${ARGN})
  target_include_directories(${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
  target_compile_features(${name} PUBLIC cxx_std_20)
  fwht_warnings(${name})
  set_target_properties(${name} PROPERTIES DEFINE_SYMBOL "")
  add_library(${name}_static STATIC $<TARGET_OBJECTS:${name}>)
  target_include_directories(${name}_static
    INTERFACE $<BUILD_INTERFACE:$<TARGET_PROPERTY:${name},INTERFACE_INCLUDE_DIRECTORIES>>)
  target_compile_features(${name}_static PUBLIC cxx_std_20)
  set_target_properties(${name}_static PROPERTIES OUTPUT_NAME ${name} LINKER_LANGUAGE CXX)
endfunction()

function(fwht_part_links name)
  foreach(library IN LISTS ARGN)
    if(library STREQUAL "CUDA::cudart_static" AND FWHT_SHARED)
      target_link_libraries(${name} PUBLIC CUDA::cudart)  # one runtime a process
    else()
      target_link_libraries(${name} PUBLIC ${library})
    endif()
    if(FWHT_SHARED AND TARGET ${library}_static)
      target_link_libraries(${name}_static PUBLIC ${library}_static)
    elseif(FWHT_SHARED)
      target_link_libraries(${name}_static PUBLIC ${library})
    endif()
  endforeach()
endfunction()

# A driver takes a second or more to start, so GPU cases share processes; and where there is no GPU, each of these few is
# skipped with its reason. The times of single cases are in <build>/test_times/.
function(fwht_gpu_test name program filter shards)
  foreach(shard RANGE 1 ${shards})
    math(EXPR index "${shard} - 1")
    set(environment "GTEST_OUTPUT=xml:${PROJECT_BINARY_DIR}/test_times/${name}.${shard}.xml")
    if(shards GREATER 1)
      list(APPEND environment GTEST_TOTAL_SHARDS=${shards} GTEST_SHARD_INDEX=${index})
    endif()
    add_test(NAME ${name}.${shard} COMMAND ${program} "--gtest_filter=${filter}")
    set_tests_properties(${name}.${shard} PROPERTIES
      LABELS gpu TIMEOUT 600 SKIP_RETURN_CODE 77 ENVIRONMENT "${environment}")
  endforeach()
endfunction()

function(fwht_test name)
  cmake_parse_arguments(arg "" "LABEL;TIMEOUT;GPU_FILTER;GPU_SHARDS" "SOURCES;LIBRARIES" ${ARGN})
  if(NOT FWHT_TESTS)
    return()
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_LIBRARIES} fmt::fmt-header-only fwht_test_main)
  fwht_warnings(${name})
  set(host_filter "*")
  if(arg_LABEL STREQUAL "host+gpu")
    set(host_filter "-*Gpu*.*:*Gpu*/*")
    if(NOT arg_GPU_FILTER)
      set(arg_GPU_FILTER "*Gpu*.*:*Gpu*/*")
    endif()
    if(NOT arg_GPU_SHARDS)
      set(arg_GPU_SHARDS 1)
    endif()
    fwht_gpu_test(${name}.gpu ${name} "${arg_GPU_FILTER}" ${arg_GPU_SHARDS})
  elseif(NOT arg_LABEL STREQUAL "host")
    message(FATAL_ERROR "fwht_test(${name}): LABEL is host or host+gpu, not '${arg_LABEL}'")
  endif()
  # PRE_TEST: the list of cases is asked for when ctest runs, so a program that needs a driver to load still builds.
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60 TEST_FILTER "${host_filter}"
    PROPERTIES LABELS host TIMEOUT ${arg_TIMEOUT})
endfunction()

# Sources made from templates x.cu.in: x_f16.cu and x_bf16.cu where @dtype@ stands in it, one a format too where @format@
# does: all of them, or those behind the name, as x.cu.in:e4m3,mxfp4 (or with =).
function(fwht_instances variable)
  set(sources "")
  foreach(entry IN LISTS ARGN)
    string(REGEX MATCH "^([^=:]+)[=:]?(.*)$" unused ${entry})
    set(template ${CMAKE_CURRENT_SOURCE_DIR}/${CMAKE_MATCH_1})
    string(REPLACE "," ";" formats "${CMAKE_MATCH_2}")
    if(NOT formats)
      set(formats e4m3 int8 int4 mxfp8 mxfp4 nvfp4)
    endif()
    file(READ ${template} text)
    set(dtypes "")
    if(text MATCHES "@dtype@")
      set(dtypes f16 bf16)
    endif()
    if(NOT text MATCHES "@format@")
      set(formats "")
    endif()
    file(RELATIVE_PATH stem ${PROJECT_SOURCE_DIR} ${template})
    string(REGEX REPLACE "\\.cu\\.in$" "" stem ${stem})
    foreach(dtype IN LISTS dtypes ITEMS "")
      foreach(format IN LISTS formats ITEMS "")
        if((dtype STREQUAL "" AND dtypes) OR (format STREQUAL "" AND formats))
          continue()
        endif()
        string(REGEX REPLACE "_+$" "" name "${stem}_${dtype}_${format}")
        string(REPLACE "__" "_" name ${name})
        configure_file(${template} ${FWHT_GENERATED}/${name}.cu @ONLY)
        list(APPEND sources ${FWHT_GENERATED}/${name}.cu)
      endforeach()
    endforeach()
  endforeach()
  set(${variable} ${sources} PARENT_SCOPE)
endfunction()

# variants/<name>/<name>.cpp holds the variant (host code: supports, geometry); <name>.cu, with CUDA, the kernels and
# make_plan, KERNELS and INSTANCES more of them, compiled by themselves. In a build without CUDA a make_plan that throws takes the
# place of all of these, so the variant stays listed. Every variants/<name>/*_test.cpp becomes a test program of TEST_LABEL
# (host), which gets the files ON_HOST too: a kernel's program executed by the host. PLANS names the functions where a
# folder has several.
function(fwht_variant name)
  cmake_parse_arguments(arg "CUDA" "TEST_LABEL" "SOURCES;KERNELS;INSTANCES;PLANS;ON_HOST" ${ARGN})
  if(NOT arg_TEST_LABEL)
    set(arg_TEST_LABEL host)
  endif()
  set(sources ${name}/${name}.cpp ${arg_SOURCES})
  if(arg_CUDA AND FWHT_WITH_CUDA)
    fwht_instances(instances ${arg_INSTANCES})
    list(APPEND sources ${name}/${name}.cu ${arg_KERNELS} ${instances})
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
    fwht_test(${stem} LABEL ${arg_TEST_LABEL} SOURCES ${test} ${arg_ON_HOST} LIBRARIES fwht_variants fwht_reference)
  endforeach()
endfunction()
