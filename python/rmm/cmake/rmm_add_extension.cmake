# SPDX-License-Identifier: Apache-2.0

# How extension modules are made: for the stable ABI of Python 3.11, so that one build serves that release and all later ones. A
# free-threaded Python has no stable ABI: a build for one serves that release only.
#
# One library, librmm/lib/librmm_python.abi3.so or librmm_python.so, has the code of all modules, the engine and the static CUDA runtime, each of them once.
# A file of a module is an alias: a shared object without functions that needs this library. Python opens it and looks up the module's
# PyInit function, which the dynamic loader finds in what the alias needs.

execute_process(
  COMMAND "${Python_EXECUTABLE}" -c "import Cython; print(Cython.__version__)"
  OUTPUT_VARIABLE rmm_cython_version
  ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
if(rmm_cython_version VERSION_LESS 3.1)
  message(FATAL_ERROR "RMM's Python package needs Cython 3.1 or newer (here: '${rmm_cython_version}'): pip install cython")
endif()

execute_process(
  COMMAND "${Python_EXECUTABLE}" -c "import sysconfig; print(sysconfig.get_config_var('Py_GIL_DISABLED') or 0)"
  OUTPUT_VARIABLE rmm_python_is_free_threaded
  OUTPUT_STRIP_TRAILING_WHITESPACE)
if(rmm_python_is_free_threaded)
  set(rmm_python_definitions CYTHON_USE_TYPE_SPECS=1 CYTHON_USE_TYPE_SLOTS=0) # classes and conversions as in the stable ABI
  set(rmm_library_suffix ".so")
  string(REPLACE "${CMAKE_HOST_SYSTEM_PROCESSOR}" "${CMAKE_SYSTEM_PROCESSOR}" rmm_module_suffix ".${Python_SOABI}.so")
else()
  set(rmm_python_definitions Py_LIMITED_API=0x030B0000)
  set(rmm_library_suffix ".abi3.so")
  set(rmm_module_suffix ".abi3.so")
endif()

set(rmm_python_root "${CMAKE_CURRENT_SOURCE_DIR}")
# A later release of Cython may warn of more. That must not end an installation.
option(RMM_CYTHON_WARNINGS_ARE_ERRORS "Fail where Cython warns" OFF)
set(rmm_cython_options "")
if(RMM_CYTHON_WARNINGS_ARE_ERRORS)
  set(rmm_cython_options --warning-errors)
endif()

# A source distribution has C++ files of the modules. They are compiled unless their sources were changed, or Python is a free-threaded one,
# whose later releases may need what a later Cython writes.
set(rmm_translated "${rmm_python_root}/translated")
option(RMM_TRANSLATE "Run Cython even if the source distribution has its results" OFF)
if(EXISTS "${rmm_translated}/digest" AND NOT RMM_TRANSLATE AND NOT rmm_python_is_free_threaded)
  execute_process(
    COMMAND "${Python_EXECUTABLE}" "${rmm_python_root}/cmake/translate.py" --digest
    OUTPUT_VARIABLE rmm_digest
    OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  file(STRINGS "${rmm_translated}/digest" rmm_translated_digest LIMIT_COUNT 1)
  if(NOT rmm_digest STREQUAL rmm_translated_digest)
    set(RMM_TRANSLATE ON)
  endif()
else()
  set(RMM_TRANSLATE ON)
endif()

add_library(rmm_python SHARED)
target_compile_definitions(rmm_python PRIVATE ${rmm_python_definitions} RMM_COMPILED_RESOURCES)

# The engine and all resources, compiled once for the extension modules, librmm_c.so.1 and rmm-trace. The state of librmm_c.so.1 is private,
# so the linker decides whether these files share theirs with other libraries. The modules compile the notes by which others find it.
add_library(rmm_python_engine OBJECT rmm/librmm/_innermost_resource.cpp rmm/pylibrmm/memory_resource/_makers.cpp)
set_target_properties(rmm_python_engine PROPERTIES CXX_VISIBILITY_PRESET hidden POSITION_INDEPENDENT_CODE ON UNITY_BUILD ON)
set(engine "${rmm_repository}/cmake/rmm_compiled.cpp" "${CMAKE_CURRENT_SOURCE_DIR}/cpp/cmake/rmm_compiled.cpp")
set_property(SOURCE ${engine} PROPERTY SKIP_UNITY_BUILD_INCLUSION ON) # so that two processors can share the work
target_compile_options(rmm_python_engine PRIVATE $<$<CONFIG:Release>:-O2>) # the resources take a fifth longer to compile with -O3
set_property(SOURCE ${engine} PROPERTY COMPILE_OPTIONS $<$<CONFIG:Release>:-O3>)
target_link_libraries(rmm_python_engine PRIVATE rmm::rmm_compiled)
target_compile_definitions(rmm_python_engine PRIVATE RMM_STATE_BY_LINKER)
foreach(target IN ITEMS rmm_python rmm_python_engine)
  target_compile_features(${target} PRIVATE cxx_std_17)
  target_compile_definitions(${target} PRIVATE RMM_COMPILED RMM_WITHOUT_SPDLOG "RMM_LOG_ACTIVE_LEVEL=RMM_LOG_LEVEL_${RMM_LOGGING_LEVEL}")
  target_include_directories(${target} PRIVATE "${rmm_python_root}/rmm")
  target_compile_options(${target} PRIVATE -fno-semantic-interposition)
  target_link_libraries(${target} PRIVATE $<TARGET_NAME_IF_EXISTS:rmm_late_passes>)
endforeach()
target_sources(rmm_python PRIVATE $<TARGET_OBJECTS:rmm_python_engine>)
if(TARGET rmm-trace)
  target_sources(rmm-trace PRIVATE $<TARGET_OBJECTS:rmm_python_engine>)
  target_compile_definitions(rmm-trace PRIVATE RMM_COMPILED RMM_COMPILED_RESOURCES)
  add_dependencies(rmm_python rmm-trace) # so that Ninja compiles the large files first, and small ones share the processors at the end
endif()
if(TARGET rmm_c)
  target_sources(rmm_c PRIVATE $<TARGET_OBJECTS:rmm_python_engine>)
  target_compile_definitions(rmm_c PRIVATE RMM_COMPILED RMM_COMPILED_RESOURCES)
  add_dependencies(rmm_python rmm_c)
endif()
if(RMM_CUDA_BACKEND STREQUAL "sim")
  set_target_properties(rmm_python PROPERTIES RMM_LINK_SIMULATOR ON)
  target_link_libraries(rmm_python PRIVATE rmm_cudart_sim)
endif()
target_link_libraries(rmm_python PRIVATE rmm::rmm Python::Module)
# Debian's pyconfig.h includes the one of the target machine, which is not installed when cross-compiling. On machines of 64 bits, these
# files do not differ in what the stable ABI needs.
if(CMAKE_CROSSCOMPILING)
  file(GLOB rmm_host_pyconfig "/usr/include/${CMAKE_HOST_SYSTEM_PROCESSOR}-linux-gnu/python${Python_VERSION_MAJOR}.${Python_VERSION_MINOR}/pyconfig.h")
  if(rmm_host_pyconfig)
    configure_file(
      "${rmm_host_pyconfig}"
      "target_include/${CMAKE_SYSTEM_PROCESSOR}-linux-gnu/python${Python_VERSION_MAJOR}.${Python_VERSION_MINOR}/pyconfig.h" COPYONLY)
    target_include_directories(rmm_python PRIVATE "${CMAKE_CURRENT_BINARY_DIR}/target_include")
  endif()
endif()
target_link_options(rmm_python PRIVATE LINKER:--gc-sections LINKER:--exclude-libs,ALL LINKER:--disable-new-dtags)
set_target_properties(
  rmm_python
  PROPERTIES SUFFIX "${rmm_library_suffix}"
             OUTPUT_NAME rmm_python
             CXX_VISIBILITY_PRESET hidden
             BUILD_WITH_INSTALL_RPATH ON
             INSTALL_RPATH "\$ORIGIN"
             LIBRARY_OUTPUT_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}/librmm/lib")
install(TARGETS rmm_python LIBRARY DESTINATION librmm/lib)

file(CONFIGURE OUTPUT "${CMAKE_CURRENT_BINARY_DIR}/alias.cpp" CONTENT "// has nothing of its own\n")

# rmm_add_alias(<package.name> <suffix>): installs a shared object without functions that needs librmm_python. A program that opens it finds
# the functions of librmm_python there. It always loads the librmm_python of its own package, whatever LD_LIBRARY_PATH says. Aliases in
# folders of the same depth are copies of one file.
function(rmm_add_alias module suffix)
  string(REGEX REPLACE ".*\\." "" name "${module}")
  string(REGEX REPLACE "\\.[^.]*$" "" package "${module}")
  string(REPLACE "." "/" folder "${package}")
  string(REGEX REPLACE "[^/]+" ".." to_root "${folder}")
  string(LENGTH "rmm_alias_${to_root}" length)
  set(target "rmm_alias_${length}")
  if(NOT TARGET ${target})
    add_library(${target} MODULE "${CMAKE_CURRENT_BINARY_DIR}/alias.cpp")
    add_dependencies(${target} rmm_python)
    target_link_options(
      ${target} PRIVATE LINKER:--no-as-needed "$<TARGET_FILE:rmm_python>" LINKER:--as-needed LINKER:--disable-new-dtags LINKER:--strip-all)
    set_target_properties(
      ${target}
      PROPERTIES BUILD_WITH_INSTALL_RPATH ON
                 INSTALL_RPATH "\$ORIGIN/${to_root}/librmm/lib"
                 LINK_DEPENDS "$<TARGET_FILE:rmm_python>")
  endif()
  install(PROGRAMS "$<TARGET_FILE:${target}>" DESTINATION "${folder}" RENAME "${name}${suffix}")
endfunction()

# rmm_add_extension(<package.module> [<option>]): compiles the Cython file of that module, in releases with that option of the compiler.
function(rmm_add_extension module)
  string(REPLACE "." "/" path "${module}")
  if(RMM_TRANSLATE)
    set(cpp "${CMAKE_CURRENT_BINARY_DIR}/${path}.cpp")
    file(GLOB_RECURSE declarations CONFIGURE_DEPENDS "${rmm_python_root}/rmm/*.pxd")
    add_custom_command(
      OUTPUT "${cpp}"
      COMMAND Python::Interpreter "${rmm_python_root}/cmake/translate.py" ${rmm_cython_options} ${module}
      DEPENDS "${rmm_python_root}/${path}.pyx" ${declarations} "${rmm_python_root}/cmake/translate.py"
              "${rmm_python_root}/cmake/add_signatures.py"
      WORKING_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}"
      VERBATIM)
  else()
    set(cpp "${rmm_translated}/${path}.cpp")
  endif()
  target_sources(rmm_python PRIVATE "${cpp}")
  set_property(SOURCE "${cpp}" PROPERTY COMPILE_OPTIONS $<$<CONFIG:Release>:${ARGN}>)
  # Cython writes this function without `static`, into each module that uses it.
  string(MAKE_C_IDENTIFIER "${module}" prefix)
  set_property(
    SOURCE "${cpp}" PROPERTY COMPILE_DEFINITIONS "__Pyx_ApplySequenceOrMappingFlag=${prefix}_ApplySequenceOrMappingFlag")
  rmm_add_alias(${module} "${rmm_module_suffix}")
endfunction()
