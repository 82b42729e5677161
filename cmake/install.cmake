# find_package(fwht) for other CMake projects: fwht::variants carries the registry and every variant.
include(CMakePackageConfigHelpers)
foreach(part common variants)
  set(target fwht_${part}_static)
  if(NOT FWHT_SHARED)
    set(target fwht_${part})
  endif()
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${part})
  add_library(fwht::${part} ALIAS ${target})  # by the same name where another project adds this one as a folder
  install(TARGETS ${target} EXPORT fwhtTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
    INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
endforeach()
install(EXPORT fwhtTargets NAMESPACE fwht:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/fwht)
# Another project that adds this one as a folder includes them as an installed one: <fwht/registry.hpp>.
if(NOT PROJECT_IS_TOP_LEVEL)
  include(public_headers)
  fwht_write_public_headers(${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR}/include/fwht)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${FWHT_PUBLIC_HEADERS})
  target_include_directories(fwht_common INTERFACE $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include>)
endif()
# Written when `cmake --install` runs, so that they are those of the sources.
install(CODE "
  include(\"${PROJECT_SOURCE_DIR}/cmake/public_headers.cmake\")
  file(REMOVE_RECURSE \"${PROJECT_BINARY_DIR}/public_headers\")
  fwht_write_public_headers(\"${PROJECT_SOURCE_DIR}\" \"${PROJECT_BINARY_DIR}/public_headers\")")
install(DIRECTORY ${PROJECT_BINARY_DIR}/public_headers/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/fwht)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/fwhtConfig.cmake.in ${PROJECT_BINARY_DIR}/fwhtConfig.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/fwht)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/fwhtConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/fwhtConfig.cmake ${PROJECT_BINARY_DIR}/fwhtConfigVersion.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/fwht)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/docs/third_party.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
