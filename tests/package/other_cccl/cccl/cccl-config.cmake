# SPDX-License-Identifier: Apache-2.0

# Stands for the package of another release of CCCL: that of the toolkit with one header replaced.
if(NOT TARGET CCCL::CCCL)
  find_path(toolkit_cccl cub/version.cuh PATHS ${CUDAToolkit_INCLUDE_DIRS} PATH_SUFFIXES cccl NO_DEFAULT_PATH)
  add_library(CCCL::CCCL INTERFACE IMPORTED GLOBAL)
  set_target_properties(CCCL::CCCL PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${CMAKE_CURRENT_LIST_DIR};${toolkit_cccl}")
endif()
