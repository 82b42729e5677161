# Builds the Kokkos modules (variants/kokkos/module.hpp) and says why where it cannot. Leaves
# fwht_kokkos_attach(target), which gives a target the modules' description and builds them before it.
include(kokkos_source)

set(FWHT_KOKKOS_CUDA AUTO CACHE STRING
  "Build the CUDA module of Kokkos, four minutes of one core: AUTO (where a CUDA device can run it), ON, OFF")
set(FWHT_KOKKOS_CUDA_ARCHITECTURE AUTO CACHE STRING
  "Compute capability of the CUDA module, such as 90: Kokkos takes one. AUTO: this machine's device, else the lowest of \
CMAKE_CUDA_ARCHITECTURES, whose PTX every later device compiles for itself")
set_property(CACHE FWHT_KOKKOS_CUDA PROPERTY STRINGS AUTO ON OFF)
fwht_choose(FWHT_KOKKOS_CUDA)

set(FWHT_KOKKOS_MODULES ${PROJECT_BINARY_DIR}/kokkos_modules)

# Compute capability of this machine's device, such as 90; empty without one.
set(fwht_kokkos_here "")
execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader
  OUTPUT_VARIABLE answer RESULT_VARIABLE failed ERROR_QUIET)
if(NOT failed AND answer MATCHES "^([0-9]+)\\.([0-9]+)")
  set(fwht_kokkos_here ${CMAKE_MATCH_1}${CMAKE_MATCH_2})
endif()

function(fwht_kokkos_architecture number name)
  set(wanted ${FWHT_KOKKOS_CUDA_ARCHITECTURE})
  if(wanted STREQUAL "AUTO")
    set(wanted "${fwht_kokkos_here}")
    if(wanted STREQUAL "")
      foreach(architecture IN LISTS CMAKE_CUDA_ARCHITECTURES)
        string(REGEX MATCH "^[0-9]+" digits "${architecture}")
        if(digits AND (wanted STREQUAL "" OR digits LESS wanted))
          set(wanted ${digits})
        endif()
      endforeach()
    endif()
  endif()
  set(names 80 AMPERE80 86 AMPERE86 87 AMPERE87 89 ADA89 90 HOPPER90 100 BLACKWELL100 120 BLACKWELL120)
  list(FIND names "${wanted}" place)
  if(place EQUAL -1)
    set(wanted 80)  # every later device compiles its PTX
    set(place 0)
  endif()
  math(EXPR place "${place} + 1")
  list(GET names ${place} kokkos_name)
  set(${number} ${wanted} PARENT_SCOPE)
  set(${name} ${kokkos_name} PARENT_SCOPE)
endfunction()

# The last complaint of a CMake log, on one line.
function(fwht_last_error log sentence)
  file(READ ${log} text)
  string(REGEX MATCHALL "CMake Error[^\n]*\n+ *[^\n]*(\n +[^\n]+)*" errors "${text}")
  set(last "see ${log}")
  if(errors)
    list(GET errors 0 last)
    string(REGEX REPLACE "^CMake Error[^\n]*\n+" "" last "${last}")
    string(REGEX REPLACE "[ \n]+" " " last "${last}")
    string(STRIP "${last}" last)
    string(REGEX REPLACE "^fwht: " "" last "${last}")
  endif()
  set(${sentence} "${last}" PARENT_SCOPE)
endfunction()

# Configures a module in `folder`, with Kokkos from `source` or, where that is empty, an installed one; `why_not` is
# empty when it can be built there.
function(fwht_kokkos_configure module folder source why_not)
  set(command ${CMAKE_COMMAND} -S ${PROJECT_SOURCE_DIR}/variants/kokkos -B ${folder} -G ${CMAKE_GENERATOR}
    -D FWHT_MODULE=${module} -D FWHT_KOKKOS_VERSION=${FWHT_KOKKOS_VERSION} -D FWHT_SOURCE_DIR=${PROJECT_SOURCE_DIR} -D FWHT_KOKKOS_SOURCE_DIR=${source}
    -D FWHT_MODULE_FOLDER=${FWHT_KOKKOS_MODULES} -D FWHT_WERROR=${FWHT_WERROR}
    -D CMAKE_BUILD_TYPE=${CMAKE_BUILD_TYPE} -D "CMAKE_PREFIX_PATH=${CMAKE_PREFIX_PATH}" -D "Kokkos_ROOT=${Kokkos_ROOT}")
  if(module STREQUAL "cuda")
    fwht_kokkos_architecture(number name)
    set(wrapper ${source}/bin/nvcc_wrapper)
    if(source STREQUAL "")
      find_program(FWHT_NVCC_WRAPPER nvcc_wrapper HINTS ${Kokkos_ROOT}/bin)
      set(wrapper ${FWHT_NVCC_WRAPPER})
    endif()
    if(NOT EXISTS "${wrapper}")
      set(${why_not} "no nvcc_wrapper was found" PARENT_SCOPE)
      return()
    endif()
    list(PREPEND command ${FWHT_NVCC_WRAPPER_ENVIRONMENT})
    list(APPEND command -D FWHT_KOKKOS_ARCH=${name} -D CMAKE_CXX_COMPILER=${wrapper}
      -D CUDAToolkit_ROOT=${CUDAToolkit_LIBRARY_ROOT})
  else()
    list(APPEND command -D CMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER} -D "CMAKE_CXX_FLAGS=${CMAKE_CXX_FLAGS}"
      -D CMAKE_CXX_COMPILER_LAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER})
  endif()
  # Configured again only when what it is told has changed; its own build notices changes of its files.
  string(SHA256 signature "${command}")
  if(EXISTS ${folder}/${signature})
    file(READ ${folder}/${signature} sentence)
    set(${why_not} "${sentence}" PARENT_SCOPE)
    return()
  endif()
  file(REMOVE_RECURSE ${folder})
  file(MAKE_DIRECTORY ${folder})
  set(sentence "")
  execute_process(COMMAND ${command} OUTPUT_FILE ${folder}/configure.log ERROR_FILE ${folder}/configure.log
    RESULT_VARIABLE failed)
  if(failed)
    fwht_last_error(${folder}/configure.log sentence)
  endif()
  if(NOT failed OR source STREQUAL "")
    file(WRITE ${folder}/${signature} "${sentence}")
  endif()
  set(${why_not} "${sentence}" PARENT_SCOPE)
endfunction()

# An installed Kokkos when it suits, else the pinned source.
function(fwht_kokkos_module module why_not)
  set(folder ${PROJECT_BINARY_DIR}/kokkos_${module}_installed)
  fwht_kokkos_configure(${module} ${folder} "" failure)
  if(NOT failure STREQUAL "")
    set(not_installed "${failure}")
    fwht_kokkos_source(source failure)
    if(failure STREQUAL "")
      set(folder ${PROJECT_BINARY_DIR}/kokkos_${module})
      fwht_kokkos_configure(${module} ${folder} ${source} failure)
    else()
      set(failure "${not_installed}, and ${failure}")
    endif()
  endif()
  set(${why_not} "${failure}" PARENT_SCOPE)
  if(NOT failure STREQUAL "")
    return()
  endif()
  set(fwht_kokkos_${module}_folder ${folder} PARENT_SCOPE)
  set(environment "")
  if(module STREQUAL "cuda")
    set(environment ${FWHT_NVCC_WRAPPER_ENVIRONMENT})
  endif()
  cmake_host_system_information(RESULT cores QUERY NUMBER_OF_LOGICAL_CORES)
  add_custom_target(fwht_kokkos_${module}_module
    COMMAND ${environment} ${CMAKE_COMMAND} --build ${folder} --target fwht_kokkos_${module} --parallel ${cores}
    BYPRODUCTS ${FWHT_KOKKOS_MODULES}/libfwht_kokkos_${module}.so
    COMMENT "Kokkos module: ${module}" USES_TERMINAL VERBATIM)
  install(FILES ${FWHT_KOKKOS_MODULES}/libfwht_kokkos_${module}.so DESTINATION ${CMAKE_INSTALL_LIBDIR}/fwht)
endfunction()

set(fwht_kokkos_why_no_host "")
set(fwht_kokkos_why_no_openmp "")
set(fwht_kokkos_why_no_cuda "")
set(fwht_kokkos_architecture_number 0)

if(FWHT_KOKKOS STREQUAL "OFF")
  set(fwht_kokkos_why_no_host "FWHT_KOKKOS=OFF")
else()
  fwht_kokkos_module(host fwht_kokkos_why_no_host)
endif()
if(fwht_kokkos_why_no_host STREQUAL "")
  include(${fwht_kokkos_host_folder}/module.cmake)
  message(STATUS "fwht: Kokkos ${fwht_kokkos_version} on the host: ${fwht_kokkos_devices} (from ${fwht_kokkos_from})")
  if(NOT "OPENMP" IN_LIST fwht_kokkos_devices)
    set(fwht_kokkos_why_no_openmp "the Kokkos of this build has no OpenMP")
  endif()
elseif(FWHT_KOKKOS STREQUAL "ON")
  message(FATAL_ERROR "FWHT_KOKKOS=ON, but ${fwht_kokkos_why_no_host}")
else()
  message(STATUS "fwht: built without Kokkos (${fwht_kokkos_why_no_host})")
endif()

if(NOT fwht_kokkos_why_no_host STREQUAL "")
  set(fwht_kokkos_why_no_cuda "no Kokkos at all")
elseif(FWHT_KOKKOS_CUDA STREQUAL "OFF")
  set(fwht_kokkos_why_no_cuda "FWHT_KOKKOS_CUDA=OFF")
elseif(NOT FWHT_WITH_CUDA)
  set(fwht_kokkos_why_no_cuda "${FWHT_WHY_NO_CUDA}")
elseif(FWHT_KOKKOS_CUDA STREQUAL "AUTO" AND fwht_kokkos_here STREQUAL "")
  set(fwht_kokkos_why_no_cuda "no CUDA device here to run it; FWHT_KOKKOS_CUDA=ON builds it")
else()
  set(FWHT_NVCC_WRAPPER_ENVIRONMENT ${CMAKE_COMMAND} -E env CUDA_ROOT=${CUDAToolkit_BIN_DIR}/..
    NVCC_WRAPPER_DEFAULT_COMPILER=${CMAKE_CXX_COMPILER})
  fwht_kokkos_module(cuda fwht_kokkos_why_no_cuda)
endif()
if(fwht_kokkos_why_no_cuda STREQUAL "")
  fwht_kokkos_architecture(fwht_kokkos_architecture_number fwht_kokkos_architecture_name)
  message(STATUS "fwht: Kokkos on CUDA: a module for ${fwht_kokkos_architecture_name}")
elseif(FWHT_KOKKOS_CUDA STREQUAL "ON")
  message(FATAL_ERROR "FWHT_KOKKOS_CUDA=ON, but ${fwht_kokkos_why_no_cuda}")
else()
  message(STATUS "fwht: Kokkos on CUDA: not built (${fwht_kokkos_why_no_cuda})")
endif()

file(CONFIGURE OUTPUT ${FWHT_GENERATED}/kokkos_config.hpp @ONLY CONTENT [[
// Made by the configuration; not a source.
#pragma once
#include <string_view>
namespace fwht::kokkos::config {
// Empty when the module is built, else the reason.
inline constexpr std::string_view kWhyNoHost = R"(@fwht_kokkos_why_no_host@)";
inline constexpr std::string_view kWhyNoOpenmp = R"(@fwht_kokkos_why_no_openmp@)";
inline constexpr std::string_view kWhyNoCuda = R"(@fwht_kokkos_why_no_cuda@)";
inline constexpr int kCudaArchitecture = @fwht_kokkos_architecture_number@;
inline constexpr const char* kHostModule = "libfwht_kokkos_host.so";
inline constexpr const char* kCudaModule = "libfwht_kokkos_cuda.so";
inline constexpr const char* kBuiltModules = "@FWHT_KOKKOS_MODULES@";
inline constexpr const char* kInstalledModules = "@CMAKE_INSTALL_FULL_LIBDIR@/fwht";
}  // namespace fwht::kokkos::config
]])

function(fwht_kokkos_attach target)
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${FWHT_GENERATED}>)  # kokkos_config.hpp
  fwht_part_links(${target} ${CMAKE_DL_LIBS})
  foreach(module host cuda)
    if(TARGET fwht_kokkos_${module}_module)
      add_dependencies(${target} fwht_kokkos_${module}_module)
    endif()
  endforeach()
endfunction()
