# Run at build time. The hash covers the sources and build files, in a fixed order, path and content.
cmake_minimum_required(VERSION 3.25)
file(GLOB_RECURSE files RELATIVE ${source_dir}
  ${source_dir}/common/* ${source_dir}/reference/* ${source_dir}/variants/* ${source_dir}/cmake/*
  ${source_dir}/experiments/*.cpp ${source_dir}/experiments/*.hpp ${source_dir}/experiments/*.cu
  ${source_dir}/experiments/*.cuh)
# Not part of the pattern above, which would find every CMakeLists.txt below, those of build folders included.
list(APPEND files experiments/CMakeLists.txt CMakeLists.txt)
list(FILTER files INCLUDE REGEX "(\\.(cpp|hpp|cu|cuh|cmake|in)|CMakeLists\\.txt)$")
list(SORT files)
set(digest "")
foreach(file IN LISTS files)
  file(SHA256 ${source_dir}/${file} one)
  string(APPEND digest "${file} ${one}\n")
endforeach()
string(SHA256 sources_hash "${digest}")

set(commit "unknown")
set(dirty "true")
find_package(Git QUIET)
# These would let the environment name another repository's commit.
foreach(variable GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE)
  unset(ENV{${variable}})
endforeach()
if(GIT_FOUND)
  # An archive may lie in a repository of something else, whose commit says nothing about it.
  file(REAL_PATH ${source_dir} root)
  execute_process(COMMAND ${GIT_EXECUTABLE} -C ${source_dir} rev-parse --show-toplevel
    OUTPUT_VARIABLE top OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  execute_process(COMMAND ${GIT_EXECUTABLE} -C ${source_dir} rev-parse HEAD
    OUTPUT_VARIABLE head OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed ERROR_QUIET)
  if(NOT failed AND "${top}" STREQUAL "${root}")
    set(commit ${head})
    # Dirty is about what is built: results and texts may change without changing the programs.
    execute_process(COMMAND ${GIT_EXECUTABLE} -C ${source_dir} status --porcelain -- common reference variants cmake
        experiments CMakeLists.txt ":!experiments/results" ":!*.md"
      OUTPUT_VARIABLE changes ERROR_QUIET)
    if("${changes}" STREQUAL "")
      set(dirty "false")
    endif()
  endif()
endif()

string(STRIP "${cxx_flags}" cxx_flags)
string(STRIP "${cuda_flags}" cuda_flags)
foreach(text version build_type cxx cxx_flags cuda cuda_flags)  # as C++ spells them
  string(REPLACE "\\" "\\\\" ${text} "${${text}}")
  string(REPLACE "\"" "\\\"" ${text} "${${text}}")
endforeach()
file(CONFIGURE OUTPUT ${output} @ONLY CONTENT [[
// Made by the build; not a source.
#pragma once
namespace fwht::build_info {
inline constexpr const char* kVersion = "@version@";
inline constexpr const char* kCommit = "@commit@";
inline constexpr bool kDirty = @dirty@;
inline constexpr const char* kSourcesHash = "@sources_hash@";
inline constexpr const char* kBuildType = "@build_type@";
inline constexpr const char* kCxx = "@cxx@";
inline constexpr const char* kCxxFlags = "@cxx_flags@";
inline constexpr const char* kCuda = "@cuda@";
inline constexpr const char* kCudaFlags = "@cuda_flags@";
}  // namespace fwht::build_info
]])
