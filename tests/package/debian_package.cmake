# SPDX-License-Identifier: Apache-2.0

# Makes the Debian package of the build tree `build`, installs it with dpkg in an empty system of its own below `scratch`, lets the
# project `source` find it there, and removes it again.

file(REMOVE_RECURSE "${scratch}")
set(root "${scratch}/system")
file(MAKE_DIRECTORY "${root}/var/lib/dpkg/info" "${root}/var/lib/dpkg/updates" "${root}/var/lib/dpkg/triggers")
file(TOUCH "${root}/var/lib/dpkg/status" "${root}/var/lib/dpkg/available")

execute_process(COMMAND "${cpack}" -G DEB --config "${build}/CPackConfig.cmake" -B "${scratch}/made" OUTPUT_QUIET
                COMMAND_ERROR_IS_FATAL ANY)
file(GLOB package "${scratch}/made/librmm-dev_*.deb")
execute_process(COMMAND dpkg-deb --field "${package}" Package Version Depends OUTPUT_VARIABLE fields COMMAND_ERROR_IS_FATAL ANY)
if(NOT fields MATCHES "Package: librmm-dev\nVersion: ${version}\nDepends: [^\n]*libc6 ")
  message(SEND_ERROR "The fields of the package are\n${fields}")
endif()

# Neither what it depends on nor a shell for its scripts is in that system.
set(dpkg dpkg "--root=${root}" --force-not-root --force-bad-path --force-depends --force-script-chrootless --force-unsafe-io
         --no-triggers)
execute_process(COMMAND ${dpkg} --install "${package}" OUTPUT_QUIET ERROR_QUIET COMMAND_ERROR_IS_FATAL ANY)
if(NOT EXISTS "${root}/usr/include/rmm/device_buffer.hpp")
  message(SEND_ERROR "The package installs no /usr/include/rmm/device_buffer.hpp")
endif()
execute_process(
  COMMAND "${CMAKE_COMMAND}" -S "${source}" -B "${scratch}/${version}" -G "${generator}" "-DCMAKE_CXX_COMPILER=${compiler}"
          "-Drmm_ROOT=${root}/usr" OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)

execute_process(COMMAND ${dpkg} --purge librmm-dev OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
file(GLOB_RECURSE left "${root}/usr/*")
if(left)
  message(SEND_ERROR "Removing the package leaves ${left}")
endif()
