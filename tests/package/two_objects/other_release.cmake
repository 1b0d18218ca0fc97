# SPDX-License-Identifier: Apache-2.0

# cmake -Dfrom=<folder of headers> -Dto=<folder> [-Dregistry=ON] -P other_release.cmake
#
# Copies the headers, as those of another release; with `registry`, of one whose registry has another layout, and so, as
# rmm/mr/detail/registry.hpp says, another anchor.

# change(<file> <text> <by>): fails if the text is not there.
function(change file text by)
  file(READ "${to}/rmm/${file}" content)
  string(REPLACE "${text}" "${by}" changed "${content}")
  if(changed STREQUAL content)
    message(FATAL_ERROR "${file} has no '${text}'")
  endif()
  file(WRITE "${to}/rmm/${file}" "${changed}")
endfunction()

file(REMOVE_RECURSE "${to}")
file(COPY "${from}/" DESTINATION "${to}")
change(version_config.hpp "#define RMM_VERSION_MAJOR " "#define RMM_VERSION_MAJOR 1")
if(registry)
  change(mr/detail/registry.hpp "  device_memory_resource* initial_;" " public:\n  char one_more[200]{};\n\n private:\n  device_memory_resource* initial_;")
  change(mr/per_device_resource.hpp "RMM_PROCESS_WIDE_ANCHOR(rmm_registry_v2, 6)" "RMM_PROCESS_WIDE_ANCHOR(rmm_registry_v2, 1001)")
  change(mr/per_device_resource.hpp "(rmm_registry_v2, 6, [" "(rmm_registry_v2, 1001, [")
  change(mr/per_device_resource.hpp "rmm_registry_v2" "rmm_registry_v1001")
endif()
