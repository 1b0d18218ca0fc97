# SPDX-License-Identifier: Apache-2.0

# How extension modules are made: for the stable ABI of Python 3.11, so that one build serves that release and all later ones.

find_package(Python 3.11 QUIET COMPONENTS Interpreter Development.Module)
if(NOT Python_FOUND)
  message(
    FATAL_ERROR
      "RMM's Python package needs Python 3.11 or newer with its headers (Python.h), which were not found for ${Python_EXECUTABLE}.\n"
      "  Install them: Debian and Ubuntu: apt-get install python3-dev, Fedora: dnf install python3-devel.")
endif()

execute_process(
  COMMAND "${Python_EXECUTABLE}" -c "import Cython; print(Cython.__version__)"
  OUTPUT_VARIABLE rmm_cython_version
  ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
if(rmm_cython_version VERSION_LESS 3.1)
  message(FATAL_ERROR "RMM's Python package needs Cython 3.1 or newer (here: '${rmm_cython_version}'): pip install cython")
endif()

set(rmm_python_root "${CMAKE_CURRENT_SOURCE_DIR}")
# Without binding=False a method that is called through its class, as in DeviceBuffer.tobytes(5), takes anything for its object.
set(rmm_cython_options --cplus -3 --directive binding=False --warning-errors -I "${rmm_python_root}")

# What all libraries of the package have in common: options, the CUDA runtime, and where it is installed.
function(rmm_set_up_library target module)
  string(REGEX REPLACE "\\.[^.]*$" "" package "${module}")
  string(REPLACE "." "/" folder "${package}")
  string(REGEX REPLACE "[^/]+" ".." to_root "${folder}")
  target_compile_features(${target} PRIVATE cxx_std_17)
  target_compile_definitions(
    ${target} PRIVATE RMM_WITHOUT_SPDLOG "RMM_LOG_ACTIVE_LEVEL=RMM_LOG_LEVEL_${RMM_LOGGING_LEVEL}")
  target_include_directories(${target} PRIVATE "${rmm_python_root}/rmm")
  target_compile_options(${target} PRIVATE -fno-semantic-interposition)
  if(RMM_CUDA_BACKEND STREQUAL "sim")
    set_target_properties(${target} PROPERTIES RMM_LINK_SIMULATOR ON)
    target_link_libraries(${target} PRIVATE rmm_cudart_sim)
    target_link_options(${target} PRIVATE LINKER:--disable-new-dtags) # the package's simulator, whatever LD_LIBRARY_PATH has
  endif()
  target_link_libraries(${target} PRIVATE rmm::rmm)
  target_link_options(${target} PRIVATE LINKER:--gc-sections LINKER:--exclude-libs,ALL)
  set_target_properties(
    ${target}
    PROPERTIES PREFIX ""
               SUFFIX ".so"
               CXX_VISIBILITY_PRESET hidden
               BUILD_WITH_INSTALL_RPATH ON
               INSTALL_RPATH "\$ORIGIN/${to_root}/librmm/lib"
               LIBRARY_OUTPUT_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}/${folder}")
  install(TARGETS ${target} LIBRARY DESTINATION "${folder}")
endfunction()

# rmm_add_extension(<package.module>): compiles the Cython file of that module, with signatures in its docstrings. Paths are relative,
# because tracebacks have them.
function(rmm_add_extension module)
  string(REPLACE "." "/" path "${module}")
  string(REGEX REPLACE ".*\\." "" name "${module}")
  string(REPLACE "." "_" target "${module}")
  set(pyx "${rmm_python_root}/${path}.pyx")
  set(cpp "${CMAKE_CURRENT_BINARY_DIR}/${path}.cpp")
  get_filename_component(folder "${cpp}" DIRECTORY)
  file(MAKE_DIRECTORY "${folder}")
  file(GLOB_RECURSE declarations CONFIGURE_DEPENDS "${rmm_python_root}/rmm/*.pxd")
  add_custom_command(
    OUTPUT "${cpp}"
    COMMAND Python::Interpreter "${rmm_python_root}/cmake/add_signatures.py" "${pyx}" "${path}.pyx"
    COMMAND Python::Interpreter -m cython ${rmm_cython_options} --module-name ${module} "${path}.pyx" -o "${path}.cpp"
    DEPENDS "${pyx}" ${declarations} "${rmm_python_root}/cmake/add_signatures.py"
    WORKING_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}"
    VERBATIM)
  add_library(${target} MODULE "${cpp}")
  rmm_set_up_library(${target} ${module})
  target_link_libraries(${target} PRIVATE Python::Module)
  target_compile_definitions(${target} PRIVATE Py_LIMITED_API=0x030B0000)
  set_target_properties(${target} PROPERTIES OUTPUT_NAME ${name} SUFFIX ".abi3.so")
endfunction()

# rmm_add_plain_library(<package.name> <source>): a shared object next to the modules that is not one.
function(rmm_add_plain_library module source)
  string(REGEX REPLACE ".*\\." "" name "${module}")
  string(REPLACE "." "_" target "${module}")
  add_library(${target} MODULE "${source}")
  rmm_set_up_library(${target} ${module})
  set_target_properties(${target} PROPERTIES OUTPUT_NAME ${name})
  target_link_options(${target} PRIVATE "LINKER:-soname,${name}.so") # who links it finds it by its run path
endfunction()

# rmm_add_alias_of_library(<package.name> <target>): a shared object whose functions are those of a plain library elsewhere in
# the package; who opens it finds them.
function(rmm_add_alias_of_library module target_of_it)
  string(REGEX REPLACE ".*\\." "" name "${module}")
  string(REGEX REPLACE "\\.[^.]*$" "" package "${module}")
  string(REPLACE "." "/" folder "${package}")
  string(REPLACE "." "_" target "${module}")
  get_target_property(folder_of_it ${target_of_it} LIBRARY_OUTPUT_DIRECTORY)
  file(RELATIVE_PATH path "${CMAKE_CURRENT_BINARY_DIR}/${folder}" "${folder_of_it}")
  file(GENERATE OUTPUT "${CMAKE_CURRENT_BINARY_DIR}/${folder}/alias.cpp" CONTENT "// has nothing of its own\n")
  add_library(${target} MODULE "${CMAKE_CURRENT_BINARY_DIR}/${folder}/alias.cpp")
  add_dependencies(${target} ${target_of_it})
  target_link_options(${target} PRIVATE LINKER:--no-as-needed "$<TARGET_FILE:${target_of_it}>" LINKER:--as-needed)
  set_target_properties(
    ${target}
    PROPERTIES PREFIX ""
               OUTPUT_NAME ${name}
               BUILD_WITH_INSTALL_RPATH ON
               INSTALL_RPATH "\$ORIGIN/${path}"
               LINK_DEPENDS "$<TARGET_FILE:${target_of_it}>"
               LIBRARY_OUTPUT_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}/${folder}")
  install(TARGETS ${target} LIBRARY DESTINATION "${folder}")
endfunction()
