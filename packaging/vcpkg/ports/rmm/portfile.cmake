# SPDX-License-Identifier: Apache-2.0

# A port of the sources that it lies in: vcpkg install rmm --overlay-ports=packaging/vcpkg/ports
get_filename_component(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../../../.." ABSOLUTE)

vcpkg_check_features(
  OUT_FEATURE_OPTIONS FEATURE_OPTIONS
  FEATURES
    nvtx RMM_NVTX
    simulator RMM_BUILD_SIMULATOR
    spdlog RMM_USE_SPDLOG)

if(NOT "simulator" IN_LIST FEATURES)
  set(VCPKG_BUILD_TYPE release) # headers alone
endif()
if(VCPKG_LIBRARY_LINKAGE STREQUAL "static" AND "simulator" IN_LIST FEATURES)
  message(STATUS "rmm::cudart_sim takes the place of a shared library, and is one.")
  set(VCPKG_POLICY_DLLS_IN_STATIC_LIBRARY enabled)
endif()

vcpkg_cmake_configure(
  SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS
    -DBUILD_TESTS=OFF
    -DBUILD_EXAMPLES=OFF
    -DRMM_BUILD_C_LIBRARY=OFF
    -DRMM_DOWNLOAD_MISSING=OFF
    ${FEATURE_OPTIONS})
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH lib/cmake/rmm)
vcpkg_fixup_pkgconfig()

file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include" "${CURRENT_PACKAGES_DIR}/debug/share")
if(NOT "simulator" IN_LIST FEATURES)
  file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug")
endif()
file(INSTALL "${CMAKE_CURRENT_LIST_DIR}/usage" DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
