# SPDX-License-Identifier: Apache-2.0

# rmm.pc, rmm-c.pc and rmm-cudart-sim.pc, for builds without CMake:
#
#   c++ app.cpp $(pkg-config --cflags --libs rmm)
#   c++ test.cpp $(pkg-config --cflags --libs rmm-cudart-sim rmm)      the simulator first; it runs without a GPU
#   cc app.c $(pkg-config --cflags --libs rmm-c)                       the C interface
#
# Their paths are relative to themselves, so an installation can be moved. The toolkit and the other packages are named by the folders
# in which this build found them.

# rmm_dependency_includes(<variable> <target>...): sets the variable to a generator expression that lists the include folders of those
# of the names that are targets.
function(rmm_dependency_includes variable)
  set(folders "")
  foreach(target IN LISTS ARGN)
    if(TARGET ${target})
      list(APPEND folders "$<TARGET_PROPERTY:${target},INTERFACE_INCLUDE_DIRECTORIES>")
    endif()
  endforeach()
  set(${variable} "$<REMOVE_DUPLICATES:$<FILTER:${folders},EXCLUDE,^(/usr/include)?$>>" PARENT_SCOPE)
endfunction()

# rmm_pkg_config(<name> <description> <flags for the compiler> <libraries>): generates and installs <name>.pc.
function(rmm_pkg_config name description cflags libs)
  file(RELATIVE_PATH to_prefix "${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig" "${CMAKE_INSTALL_PREFIX}")
  file(RELATIVE_PATH libdir "${CMAKE_INSTALL_PREFIX}" "${CMAKE_INSTALL_FULL_LIBDIR}")
  file(RELATIVE_PATH includedir "${CMAKE_INSTALL_PREFIX}" "${CMAKE_INSTALL_FULL_INCLUDEDIR}")
  string(REGEX REPLACE "/$" "" to_prefix "${to_prefix}")
  file(
    GENERATE
    OUTPUT "${PROJECT_BINARY_DIR}/pkgconfig/${name}.pc"
    CONTENT
      "prefix=\${pcfiledir}/${to_prefix}
libdir=\${prefix}/${libdir}
includedir=\${prefix}/${includedir}

Name: ${name}
Description: ${description}
Version: ${PROJECT_VERSION}
Cflags: ${cflags}
Libs: ${libs}
")
  install(FILES "${PROJECT_BINARY_DIR}/pkgconfig/${name}.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
endfunction()

rmm_dependency_includes(rmm_includes CCCL::CCCL CUDA::toolkit nvtx3::nvtx3-cpp spdlog::spdlog_header_only)
set(rmm_definitions "$<REMOVE_DUPLICATES:$<TARGET_PROPERTY:rmm,INTERFACE_COMPILE_DEFINITIONS>>")
if(CUDA_STATIC_RUNTIME)
  set(rmm_runtime "-lcudart_static -lrt -lpthread")
else()
  set(rmm_runtime "-lcudart")
endif()
set(rmm_libraries "${rmm_runtime} -ldl")
if(RMM_USES_SPDLOG AND TARGET fmt::fmt)
  string(APPEND rmm_libraries " -lfmt") # rmm/logger.hpp needs it
endif()
# Whether CCCL's assertions are on is decided by a program's build, not by this one.
set(rmm_definitions "$<FILTER:${rmm_definitions},EXCLUDE,^CCCL_ENABLE_ASSERTIONS$>")
rmm_pkg_config(
  rmm "${PROJECT_DESCRIPTION}" "-I\${includedir} -I\"$<JOIN:${rmm_includes},\" -I\">\" -D$<JOIN:${rmm_definitions}, -D>"
  "-L\"${CUDAToolkit_LIBRARY_DIR}\" ${rmm_libraries}")
if(RMM_BUILD_SIMULATOR)
  rmm_dependency_includes(rmm_includes CUDA::toolkit)
  rmm_pkg_config(
    rmm-cudart-sim "The CUDA runtime, simulated on the CPU" "-I\${includedir} -I\"$<JOIN:${rmm_includes},\" -I\">\""
    "-L\${libdir} -Wl,--no-as-needed -lcudart_sim")
endif()
if(RMM_BUILD_C_LIBRARY)
  if(NOT DEFINED RMM_C_LINK_NAME)
    set(RMM_C_LINK_NAME rmm_c) # a package without librmm_c.so says :librmm_c.so.1
  endif()
  rmm_pkg_config(rmm-c "The C interface of RMM" "-I\${includedir}" "-L\${libdir} -l${RMM_C_LINK_NAME}")
endif()
