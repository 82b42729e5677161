# find_package(fwht) for other CMake projects: fwht::variants carries the registry and every variant.
include(CMakePackageConfigHelpers)
install(TARGETS fwht_common fwht_variants EXPORT fwhtTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/fwht)
install(EXPORT fwhtTargets NAMESPACE fwht:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/fwht)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/common ${PROJECT_SOURCE_DIR}/variants
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/fwht FILES_MATCHING PATTERN "*.hpp")
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/fwhtConfig.cmake.in ${PROJECT_BINARY_DIR}/fwhtConfig.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/fwht)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/fwhtConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/fwhtConfig.cmake ${PROJECT_BINARY_DIR}/fwhtConfigVersion.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/fwht)
