#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0

# Tries the recipes of this folder with what PyPI has of their tools, in FOLDER: packaging/check.sh FOLDER. Ends with the number of
# failures. README.md says what is tried how.

set -uo pipefail

PACKAGING="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
mkdir -p "${1:?packaging/check.sh FOLDER}"
FOLDER="$(cd "$1" && pwd)"
FAILURES=0

attempt() {  # NAME COMMAND...
  local name="$1"
  shift
  if "$@" >"$FOLDER/log" 2>&1; then
    printf '%s: worked\n' "$name"
  else
    printf '%s: FAILED\n' "$name"
    tail -n 40 "$FOLDER/log"
    ((FAILURES += 1))
  fi
}

conan_create() {  # OPTION...: a copy of the test package, because Conan builds it where it lies
  rm -rf "$FOLDER/test_package"
  cp -r "$PACKAGING/conan/test_package" "$FOLDER"
  "$FOLDER/venv/bin/conan" create "$PACKAGING/conan" --test-folder "$FOLDER/test_package" -s compiler.cppstd=17 "$@"
}

render_conda() {
  "$FOLDER/venv/bin/python" - "$PACKAGING/conda/recipe.yaml" "$PACKAGING/../VERSION" <<'PYTHON'
import pathlib
import sys

from rattler_build import Stage0Recipe, VariantConfig

recipe = Stage0Recipe.from_file(sys.argv[1])
variants = VariantConfig.from_yaml('cxx_compiler: ["gxx"]\n')
(rendered,) = recipe.render(variants)
version = pathlib.Path(sys.argv[2]).read_text().strip()
assert (rendered.recipe.package.name, str(rendered.recipe.package.version)) == ("librmm", version), rendered
PYTHON
}

check_vcpkg() {  # the manifest is JSON with what vcpkg requires; the port parses and uses functions of vcpkg's alone
  python3 - "$PACKAGING/vcpkg/ports/rmm" "$PACKAGING/../VERSION" <<'PYTHON'
import json
import pathlib
import re
import sys

port = pathlib.Path(sys.argv[1])
manifest = json.loads((port / "vcpkg.json").read_text())
assert manifest["name"] == "rmm" and manifest["version-string"] == pathlib.Path(sys.argv[2]).read_text().strip(), manifest
known = set(manifest["features"])
text = (port / "portfile.cmake").read_text()
used = set(re.findall(r"^    (\w+) RMM_\w+", text, re.MULTILINE))
assert used == known, (used, known)
PYTHON
  cat >"$FOLDER/port.cmake" <<'CMAKE'
cmake_minimum_required(VERSION 3.25)
foreach(function vcpkg_check_features vcpkg_cmake_configure vcpkg_cmake_install vcpkg_cmake_config_fixup vcpkg_fixup_pkgconfig
                 vcpkg_install_copyright)
  function(${function})
  endfunction()
endforeach()
set(CURRENT_PACKAGES_DIR "${folder}/vcpkg")
set(PORT rmm)
include("${port}/portfile.cmake")
if(NOT EXISTS "${SOURCE_PATH}/include/rmm/device_buffer.hpp")
  message(FATAL_ERROR "The port looks for the sources in ${SOURCE_PATH}")
endif()
CMAKE
  cmake "-Dfolder=$FOLDER" "-Dport=$PACKAGING/vcpkg/ports/rmm" -P "$FOLDER/port.cmake"
}

check_spack() {  # with stand-ins for what `from spack.package import *` brings
  python3 - "$PACKAGING/spack/packages/rmm/package.py" <<'PYTHON'
import os
import subprocess
import sys
import types

made = types.ModuleType("spack.package")
calls = []
for name in ("version", "variant", "depends_on", "license"):
    setattr(made, name, lambda *args, _name=name, **kwargs: calls.append((_name, args, kwargs)))


class CMakePackage:
    define = staticmethod(lambda name, value: f"-D{name}={value}")
    define_from_variant = staticmethod(lambda name, variant: f"-D{name}=@{variant}@")


made.CMakePackage = CMakePackage
sys.modules["spack"] = types.ModuleType("spack")
sys.modules["spack.package"] = made
scope = {"__file__": sys.argv[1], "__name__": "package"}
with open(sys.argv[1], encoding="utf-8") as file:
    exec(compile(file.read(), sys.argv[1], "exec"), scope)
package = scope["Rmm"]
variants = {args[0] for name, args, _ in calls if name == "variant"}
used = {argument.split("@")[1] for argument in package().cmake_args() if "@" in argument}
assert variants == used, (variants, used)
assert os.path.exists(package.git[len("file://") :] + "/CMakeLists.txt"), package.git
PYTHON
}

if [[ ! -x "$FOLDER/venv/bin/conan" ]]; then
  python3 -m venv "$FOLDER/venv" && "$FOLDER/venv/bin/python" -m pip install --quiet --disable-pip-version-check conan py-rattler-build
fi
export CONAN_HOME="$FOLDER/conan"
[[ -f "$CONAN_HOME/profiles/default" ]] || "$FOLDER/venv/bin/conan" profile detect >/dev/null 2>&1

attempt "conan create" conan_create
if [[ "${2:-}" == --simulator ]]; then attempt "conan create, with the simulator" conan_create -o "rmm/*:simulator=True"; fi
attempt "conda recipe rendered by rattler-build" render_conda
attempt "vcpkg port read" check_vcpkg
attempt "Spack package executed" check_spack
exit "$FAILURES"
