# Packages of the distribution; ./testbed installs them. The library itself, which is also what a wheel holds, needs none:
# threads, and with CUDA the CUDA runtime that is linked into it.
find_package(Threads REQUIRED)
if(FWHT_TESTS OR FWHT_EXPERIMENTS)
  find_package(Eigen3 3.3 REQUIRED NO_MODULE)
  find_package(fmt REQUIRED)  # header-only
endif()
if(FWHT_TESTS)
  find_package(GTest REQUIRED)
  include(GoogleTest)
endif()
if(FWHT_EXPERIMENTS)
  find_package(benchmark REQUIRED)
  find_package(CLI11 REQUIRED)
  find_package(nlohmann_json REQUIRED)
endif()
