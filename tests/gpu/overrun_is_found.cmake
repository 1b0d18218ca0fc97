# SPDX-License-Identifier: Apache-2.0

# compute-sanitizer (`sanitizer`) finds a byte that `program` (overrun.cu) writes beyond an allocation of a pool, and where: since
# pools tell of their allocations. It finds nothing where there is nothing, or where it does not listen. Takes a GPU that it supports.

if(NOT sanitizer)
  message(STATUS "Skipped: there is no compute-sanitizer")
  return()
endif()
execute_process(COMMAND "${program}" OUTPUT_VARIABLE output ERROR_VARIABLE output RESULT_VARIABLE status)
if(output MATCHES "^no device")
  message(STATUS "Skipped: there is no GPU")
  return()
elseif(output MATCHES "^no marks")
  message(STATUS "Skipped: this toolkit's NVTX has no memory extension")
  return()
elseif(NOT status EQUAL 0)
  message(FATAL_ERROR "the program alone: status ${status}\n${output}")
endif()

# run(<nvtx> <bytes beyond>): sets output.
function(run nvtx beyond)
  execute_process(COMMAND "${sanitizer}" --tool memcheck --nvtx=${nvtx} --force-blocking-launches "${program}" ${beyond}
                  OUTPUT_VARIABLE output ERROR_VARIABLE output)
  set(output "${output}" PARENT_SCOPE)
endfunction()

# expect(<text of a regular expression>)
function(expect text)
  if(NOT output MATCHES "${text}")
    message(SEND_ERROR "expected '${text}' in\n${output}")
  endif()
endfunction()

run(yes 0)
if(output MATCHES "Device not supported")
  message(STATUS "Skipped: compute-sanitizer does not support this GPU here")
  return()
endif()
expect("the kernel ended")
expect("ERROR SUMMARY: 0 errors")
run(no 1)
expect("ERROR SUMMARY: 0 errors")
run(yes 1)
expect("Invalid __global__ write of size 1 bytes")
expect("1 bytes after the nearest allocation at 0x[0-9a-f]+ of size 1,?000 bytes")
