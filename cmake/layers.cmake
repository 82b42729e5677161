# cmake -DROOT=... -P layers.cmake: no include runs upwards. The floors are common, reference, variants, experiments, from
# below; variants know no reference either. Tests stand on the floor above: they may include what judges them.
cmake_minimum_required(VERSION 3.25)

set(forbidden_in_common "reference|variants|experiments|analysis|python")
set(forbidden_in_reference "variants|experiments|analysis|python")
set(forbidden_in_variants "reference|experiments|analysis|python")
set(forbidden_in_experiments "analysis|python")
set(forbidden_in_tests "experiments|analysis|python")

set(wrong "")
set(seen 0)
foreach(floor common reference variants experiments)
  file(GLOB_RECURSE files RELATIVE ${ROOT} ${ROOT}/${floor}/*.hpp ${ROOT}/${floor}/*.cpp ${ROOT}/${floor}/*.cu
    ${ROOT}/${floor}/*.cuh ${ROOT}/${floor}/*.in)
  foreach(file IN LISTS files)
    set(forbidden "${forbidden_in_${floor}}")
    # The host twins of kernels are built into test programs alone (ON_HOST of fwht_variant).
    if(file MATCHES "(_test\\.c(pp|u)|variants/(rows|mma_split|butterflies)/host_[a-z_]+\\.[ch]pp)$"
        AND NOT floor STREQUAL "experiments")
      set(forbidden "${forbidden_in_tests}")
    endif()
    file(STRINGS ${ROOT}/${file} includes REGEX "^ *# *include +[<\"](${forbidden})/")
    foreach(include IN LISTS includes)
      string(APPEND wrong "${file}: ${include}\n")
    endforeach()
    math(EXPR seen "${seen} + 1")
  endforeach()
endforeach()
if(seen EQUAL 0)
  message(FATAL_ERROR "no sources under ${ROOT}")
endif()
if(wrong)
  message(FATAL_ERROR "includes that run upwards:\n${wrong}")
endif()
message(STATUS "${seen} files, no include runs upwards")
