# SPDX-License-Identifier: Apache-2.0

# How tests share GPUs. CTest gives each test a share if it gets the file resource_spec.json, which is written here:
#
#   ctest --resource-spec-file resource_spec.json -j 8
#
# Then each test sees only the GPUs of its share. Without that option, and on the simulator, a test sees all GPUs.

if(RMM_BACKEND STREQUAL "cuda")
  find_program(RMM_NVIDIA_SMI nvidia-smi)
  mark_as_advanced(RMM_NVIDIA_SMI)
  set(rmm_gpu_list "")
  if(RMM_NVIDIA_SMI)
    execute_process(COMMAND "${RMM_NVIDIA_SMI}" -L OUTPUT_VARIABLE rmm_gpu_list ERROR_QUIET)
  endif()
  string(REGEX MATCHALL "GPU [0-9]+:" rmm_gpu_list "${rmm_gpu_list}")
  set(rmm_gpu_specs "")
  foreach(gpu IN LISTS rmm_gpu_list)
    string(REGEX REPLACE "[^0-9]" "" gpu "${gpu}")
    list(APPEND rmm_gpu_specs "{\"id\": \"${gpu}\", \"slots\": 100}")
  endforeach()
  list(LENGTH rmm_gpu_specs rmm_gpu_count)
  list(JOIN rmm_gpu_specs ", " rmm_gpu_specs)
  file(WRITE "${PROJECT_BINARY_DIR}/resource_spec.json"
       "{\"version\": {\"major\": 1, \"minor\": 0}, \"local\": [{\"gpus\": [${rmm_gpu_specs}]}]}\n")
endif()

# Registers the program `name` as a test that takes `percent` percent of `gpus` GPUs, or of as many as there are.
function(rmm_register_test name gpus percent)
  if(RMM_BACKEND STREQUAL "cuda")
    add_test(NAME ${name} COMMAND "${CMAKE_COMMAND}" -Dprogram=$<TARGET_FILE:${name}> -P
                                  "${PROJECT_SOURCE_DIR}/cmake/rmm_run_on_shared_gpus.cmake")
    if(rmm_gpu_count GREATER 0 AND gpus GREATER rmm_gpu_count)
      set(gpus ${rmm_gpu_count})
    endif()
  else()
    add_test(NAME ${name} COMMAND ${name})
  endif()
  set_tests_properties(${name} PROPERTIES RESOURCE_GROUPS "${gpus},gpus:${percent}")
endfunction()
