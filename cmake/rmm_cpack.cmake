# SPDX-License-Identifier: Apache-2.0

# Packages by CPack: librmm-dev for Debian and Ubuntu (`cpack -G DEB`), and archives. They have what `cmake --install` installs.

set(CPACK_PACKAGE_NAME librmm-dev)
set(CPACK_PACKAGE_VERSION "${PROJECT_VERSION}")
set(CPACK_PACKAGE_VENDOR "")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_PACKAGE_DESCRIPTION
    "Headers, CMake package and pkg-config files of RMM: resources that allocate device memory, adaptors to compose them, and containers on top that work in the order of CUDA streams.")
set(CPACK_RESOURCE_FILE_LICENSE "${PROJECT_SOURCE_DIR}/LICENSE")
if(NOT CPACK_PACKAGE_CONTACT)
  set(CPACK_PACKAGE_CONTACT "RMM maintainers <maintainers@rmm.invalid>")
endif()
if(NOT CPACK_GENERATOR)
  set(CPACK_GENERATOR TGZ)
endif()
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)

set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "cuda-toolkit | nvidia-cuda-toolkit, cmake, pkg-config")
if(RMM_USES_SPDLOG) # rmm-config.cmake looks for it
  set(CPACK_DEBIAN_PACKAGE_DEPENDS libspdlog-dev)
endif()
# The packages that the installed libraries need. Debian has no packages of the libraries in an NVIDIA toolkit.
if(RMM_BACKEND STREQUAL "sim" OR NOT RMM_BUILD_ENVIRONMENT_LIBRARY)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS "${PROJECT_BINARY_DIR}/lib" "${CUDAToolkit_LIBRARY_DIR}")
endif()

include(CPack)
