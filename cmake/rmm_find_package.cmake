# SPDX-License-Identifier: Apache-2.0

# Finds the packages that rmm::rmm links. RMM's own build uses this file, and so do its users: it is installed beside
# rmm-config.cmake. These are macros, so that the packages' variables reach the caller.

# Finds one of CUDAToolkit, CCCL, nvtx3 and spdlog, and makes its targets visible in the whole project. Sets rmm_found_<name> to
# whether that worked.
macro(rmm_find_package name)
  set(rmm_found_${name} FALSE)
  if("${name}" STREQUAL "CUDAToolkit")
    # In a project that requires CMake 3.25, the module of CMake 3.25.1 (Debian 12) sets a property of CUDA::nvToolsExt, which toolkits
    # from 12 on lack. So the module gets the policies of an older project until CMake 3.26 is required.
    set(rmm_minimum_required_version "${CMAKE_MINIMUM_REQUIRED_VERSION}")
    set(CMAKE_MINIMUM_REQUIRED_VERSION 3.24)
    find_package(CUDAToolkit 11.4 QUIET GLOBAL)
    set(CMAKE_MINIMUM_REQUIRED_VERSION "${rmm_minimum_required_version}")
    unset(rmm_minimum_required_version)
    if(TARGET CUDA::cudart)
      set(rmm_found_${name} TRUE)
    endif()
  elseif("${name}" STREQUAL "CCCL")
    if(NOT TARGET CCCL::CCCL)
      if(NOT DEFINED CCCL_THRUST_HOST_SYSTEM AND DEFINED THRUST_HOST_SYSTEM)
        set(CCCL_THRUST_HOST_SYSTEM ${THRUST_HOST_SYSTEM})
      endif()
      if(NOT DEFINED CCCL_THRUST_DEVICE_SYSTEM AND DEFINED THRUST_DEVICE_SYSTEM)
        set(CCCL_THRUST_DEVICE_SYSTEM ${THRUST_DEVICE_SYSTEM})
      endif()
      find_package(CCCL CONFIG QUIET GLOBAL HINTS "${CUDAToolkit_LIBRARY_DIR}/cmake" "${CUDAToolkit_TARGET_DIR}/lib/cmake")
    endif()
    if(TARGET CCCL::CCCL)
      set(rmm_found_${name} TRUE)
    endif()
  elseif("${name}" STREQUAL "nvtx3")
    if(NOT TARGET nvtx3::nvtx3-cpp)
      find_package(nvtx3 CONFIG QUIET GLOBAL)
    endif()
    if(NOT TARGET nvtx3::nvtx3-cpp)
      # The toolkit has the headers, but no package that defines this target.
      find_path(
        RMM_NVTX3_INCLUDE_DIR nvtx3/nvtx3.hpp
        HINTS ${CUDAToolkit_INCLUDE_DIRS}
        DOC "Folder that contains nvtx3/nvtx3.hpp")
      mark_as_advanced(RMM_NVTX3_INCLUDE_DIR)
      if(RMM_NVTX3_INCLUDE_DIR)
        add_library(nvtx3::nvtx3-cpp INTERFACE IMPORTED GLOBAL)
        set_target_properties(
          nvtx3::nvtx3-cpp PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${RMM_NVTX3_INCLUDE_DIR}"
                                      INTERFACE_LINK_LIBRARIES "${CMAKE_DL_LIBS}")
      endif()
    endif()
    if(TARGET nvtx3::nvtx3-cpp)
      set(rmm_found_${name} TRUE)
    endif()
  elseif("${name}" STREQUAL "spdlog")
    if(NOT TARGET spdlog::spdlog_header_only)
      find_package(spdlog CONFIG QUIET GLOBAL)
    endif()
    if(TARGET spdlog::spdlog_header_only)
      set(rmm_found_${name} TRUE)
    endif()
  endif()
endmacro()

# Makes the named targets visible in the whole project, as rmm::rmm is, if an earlier find_package() in this folder has imported them
# for this folder alone. CMake allows that only in the folder that imported a target. A target of a parent folder can stay as it
# is, because rmm::rmm looks for its dependencies in the folder that made it, which sees that target.
# Name all targets of an export set or none of them: a package is not found if only some of its targets are visible.
macro(rmm_promote_to_global)
  get_directory_property(rmm_imported_here IMPORTED_TARGETS)
  foreach(rmm_target ${ARGN})
    list(FIND rmm_imported_here "${rmm_target}" rmm_place) # IN_LIST fails with old policies of the caller
    if(NOT rmm_place EQUAL -1)
      set_target_properties(${rmm_target} PROPERTIES IMPORTED_GLOBAL TRUE)
    endif()
  endforeach()
  unset(rmm_imported_here)
  unset(rmm_place)
  unset(rmm_target)
endmacro()

# Defines rmm::Thrust, the Thrust that comes with rmm::rmm. It uses the host and device systems of CCCL::CCCL, since a program can
# have one Thrust only.
macro(rmm_define_thrust)
  if(NOT TARGET rmm::Thrust)
    add_library(rmm::Thrust INTERFACE IMPORTED GLOBAL)
    if(TARGET CCCL::Thrust)
      set(rmm_thrust CCCL::Thrust)
    else()
      set(rmm_thrust CCCL::CCCL)
    endif()
    # Thrust includes headers of the CUDA runtime, but its target does not link the runtime.
    set_target_properties(rmm::Thrust PROPERTIES INTERFACE_LINK_LIBRARIES "${rmm_thrust};CUDA::toolkit")
    unset(rmm_thrust)
  endif()
endmacro()
