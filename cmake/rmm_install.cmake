# SPDX-License-Identifier: Apache-2.0

include(CMakePackageConfigHelpers)

set(rmm_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/rmm")

install(
  TARGETS rmm rmm_compiled
  EXPORT rmm-exports
  FILE_SET HEADERS
  INCLUDES
  DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")

# The library rapids_logger has a file of this name, which is kept if it is installed. Ours contains RMM_PROVIDES_RAPIDS_LOGGER.
if(RMM_INSTALL_RAPIDS_LOGGER)
  cmake_path(ABSOLUTE_PATH CMAKE_INSTALL_INCLUDEDIR BASE_DIRECTORY "\${CMAKE_INSTALL_PREFIX}" OUTPUT_VARIABLE rmm_include_dir)
  install(
    CODE "
      set(folder \"${rmm_include_dir}/rapids_logger\")
      set(header \"\$ENV{DESTDIR}\${folder}/logger.hpp\")
      set(ours \"new\")
      if(EXISTS \"\${header}\")
        file(STRINGS \"\${header}\" ours REGEX RMM_PROVIDES_RAPIDS_LOGGER)
      endif()
      if(ours)
        file(INSTALL DESTINATION \"\${folder}\" TYPE FILE FILES \"${PROJECT_SOURCE_DIR}/include/rapids_logger/logger.hpp\")
      else()
        message(STATUS \"Kept: \${header}, of the library rapids_logger\")
      endif()")
endif()

if(RMM_BUILD_SIMULATOR)
  install(
    TARGETS rmm_cudart_sim
    EXPORT rmm-exports
    LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
    FILE_SET HEADERS DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
endif()

# The CMake package. It exists in the installation and, with the same names, in the build tree, which can be used as rmm_ROOT.
install(
  EXPORT rmm-exports
  FILE rmm-targets.cmake
  NAMESPACE rmm::
  DESTINATION "${rmm_package_dir}")
export(
  EXPORT rmm-exports
  FILE "${PROJECT_BINARY_DIR}/rmm-targets.cmake"
  NAMESPACE rmm::)

configure_package_config_file(
  "${CMAKE_CURRENT_LIST_DIR}/rmm-config.cmake.in" "${PROJECT_BINARY_DIR}/rmm-config.cmake"
  INSTALL_DESTINATION "${rmm_package_dir}"
  NO_SET_AND_CHECK_MACRO NO_CHECK_REQUIRED_COMPONENTS_MACRO)
configure_file("${CMAKE_CURRENT_LIST_DIR}/rmm-config-version.cmake.in" "${PROJECT_BINARY_DIR}/rmm-config-version.cmake" @ONLY)
configure_file("${CMAKE_CURRENT_LIST_DIR}/rmm_find_package.cmake" "${PROJECT_BINARY_DIR}/rmm_find_package.cmake" COPYONLY)
install(FILES "${PROJECT_BINARY_DIR}/rmm-config.cmake" "${PROJECT_BINARY_DIR}/rmm-config-version.cmake"
              "${CMAKE_CURRENT_LIST_DIR}/rmm_find_package.cmake" DESTINATION "${rmm_package_dir}")

include("${CMAKE_CURRENT_LIST_DIR}/rmm_pkg_config.cmake")
install(FILES "${PROJECT_SOURCE_DIR}/cmake/rmm_compiled.cpp" DESTINATION "${CMAKE_INSTALL_DATADIR}/rmm")
install(FILES "${PROJECT_SOURCE_DIR}/tools/gdb/rmm_printers.py" DESTINATION "${CMAKE_INSTALL_DATADIR}/rmm/gdb")

# For gdb in the build tree: our printers, and Thrust's if CCCL is built from its sources. The toolkit has no printers.
set(rmm_thrust_printers "")
if(EXISTS "${CCCL_SOURCE_DIR}/thrust/scripts/gdb-pretty-printers.py")
  set(rmm_thrust_printers "source ${CCCL_SOURCE_DIR}/thrust/scripts/gdb-pretty-printers.py")
endif()
configure_file("${PROJECT_SOURCE_DIR}/tools/gdb/load-pretty-printers.in" "${PROJECT_BINARY_DIR}/load-pretty-printers" @ONLY)
