# SPDX-License-Identifier: Apache-2.0

# Configures RMM, and a project that uses the installed RMM, in ways that no other test takes, and accepts no warning of CMake, also none for
# those who develop a project. Builds one library of RMM for two types, with optimization at link time.
#
# cmake        the CMake that configures; without it the newest that PyPI has (see chosen_cmake.cmake)
# rmm          folder of the installed RMM
# source       repository of RMM
# scratch      folder for the build trees

include("${CMAKE_CURRENT_LIST_DIR}/chosen_cmake.cmake")
if(NOT cmake)
  return()
endif()
file(REMOVE_RECURSE "${scratch}")

# configure(<name> <source> <generator> <argument of CMake>...)
function(configure name folder generator)
  execute_process(
    COMMAND "${cmake}" -S "${folder}" -B "${scratch}/${name}" -G "${generator}" "-DCMAKE_CXX_COMPILER=${compiler}" -Wdev -Werror=dev -Wdeprecated
            -Werror=deprecated ${ARGN}
    RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0 OR output MATCHES "CMake (Warning|Error|Deprecation)")
    message(FATAL_ERROR "${name} with CMake ${version} ended with ${result}:\n${output}")
  endif()
endfunction()

# With all that can be built.
foreach(generator IN ITEMS "Unix Makefiles" "Ninja Multi-Config")
  string(MAKE_C_IDENTIFIER "${generator}" name)
  configure("rmm_by_${name}" "${source}" "${generator}" -DRMM_CUDA_BACKEND=sim -DRMM_BUILD_ENVIRONMENT_LIBRARY=ON -DCMAKE_CXX_FLAGS=-flto)
  configure("user_by_${name}" "${source}/examples/basic" "${generator}" "-Drmm_ROOT=${rmm}")
  configure("user_of_build_tree_by_${name}" "${source}/examples/basic" "${generator}" "-Drmm_ROOT=${scratch}/rmm_by_${name}")
endforeach()

foreach(type IN ITEMS Debug Release)
  execute_process(COMMAND "${cmake}" --build "${scratch}/rmm_by_Ninja_Multi_Config" --config ${type} --target rmm_audit
                  RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0 OR NOT EXISTS "${scratch}/rmm_by_Ninja_Multi_Config/lib/${type}/librmm_audit.so")
    message(FATAL_ERROR "librmm_audit.so was not built for the type ${type} with -flto:\n${output}")
  endif()
endforeach()
