# SPDX-License-Identifier: Apache-2.0
"""Tests of the command line of build.sh. Programs that print how they were called replace cmake and python3."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent.parent
SAYS_ITS_ARGUMENTS = '#!/bin/sh\nprintf "%s:" "${0##*/}"\nprintf " [%s]" "$@"\necho\n'


def python_needs(name: str) -> list[str]:
    """Returns the packages that PYTHON_<name>_NEEDS of build.sh lists."""
    (listed,) = re.findall(rf'^PYTHON_{name}_NEEDS=\((.*)\)$', (REPOSITORY / "build.sh").read_text(encoding="utf-8"), re.MULTILINE)
    return shlex.split(listed)


class TestCommandLine(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name).resolve() / "rmm"
        programs = self.root.parent / "programs"
        for made in (programs, self.root / "python/rmm"):
            made.mkdir(parents=True)
        shutil.copy(REPOSITORY / "build.sh", self.root)
        (self.root / "python/rmm/pyproject.toml").touch()
        for name in ("cmake", "python3"):
            (programs / name).write_text(SAYS_ITS_ARGUMENTS, encoding="utf-8")
            (programs / name).chmod(0o755)
        self.environment = {"PATH": f"{programs}:{os.environ['PATH']}"}

    def run_script(self, *arguments: str, **environment: str) -> tuple[int, str]:
        """Returns the exit status, and standard output and error together."""
        done = subprocess.run(
            [str(self.root / "build.sh"), *arguments],
            cwd=self.root, env={**self.environment, **environment}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            encoding="utf-8", check=False)
        return done.returncode, done.stdout

    def steps(self, *arguments: str, **environment: str) -> list[str]:
        """Returns the calls of the programs, without the question for what Python lacks."""
        status, output = self.run_script(*arguments, **environment)
        self.assertEqual(0, status, output)
        return [line for line in output.splitlines() if "[-c]" not in line]

    def test_nothing_builds_and_installs_both(self) -> None:
        configure, build, install, python = self.steps()
        for option in ("[-DCMAKE_BUILD_TYPE=Release]", "[-DBUILD_TESTS=OFF]", "[-DBUILD_BENCHMARKS=OFF]", "[-DCUDA_STATIC_RUNTIME=OFF]",
                       "[-DPER_THREAD_DEFAULT_STREAM=OFF]", f"[-DCMAKE_INSTALL_PREFIX={self.root}/build/install]"):
            self.assertIn(option, configure)
        self.assertEqual(f"cmake: [--build] [{self.root}/build] [--parallel] [4]", build)
        self.assertEqual(f"cmake: [--install] [{self.root}/build]", install)
        self.assertEqual(f"python3: [-m] [pip] [install] [--no-build-isolation] [--no-deps] [{self.root}/python/rmm]", python)

    def test_each_option_reaches_cmake(self) -> None:
        configure, build = self.steps("tests", "benchmarks", "-g", "-s", "--ptds", "-n")
        for option in ("BUILD_TYPE=Debug", "BUILD_TESTS=ON", "BUILD_BENCHMARKS=ON", "STATIC_RUNTIME=ON", "DEFAULT_STREAM=ON"):
            self.assertIn(option, configure)
        self.assertIn("[--build]", build)
        self.assertIn("[--verbose]", self.run_script("librmm", "-v")[1])

    def test_no_install_concerns_the_cxx_library_alone(self) -> None:
        self.assertEqual(["cmake:", "cmake:", "python3:"], [step.split()[0] for step in self.steps("-n")])

    def test_the_environment_says_where_and_how(self) -> None:
        configure, build, _ = self.steps(
            "librmm", LIBRMM_BUILD_DIR="elsewhere", PARALLEL_LEVEL="3", INSTALL_PREFIX="/1", PREFIX="/2", CONDA_PREFIX="/3")
        self.assertIn("PREFIX=/1]", configure)
        self.assertEqual(f"cmake: [--build] [{self.root}/elsewhere] [--parallel] [3]", build)
        self.assertIn("PREFIX=/2]", self.steps("librmm", PREFIX="/2", CONDA_PREFIX="/3")[0])
        self.assertIn("PREFIX=/3]", self.steps("librmm", CONDA_PREFIX="/3")[0])

    def test_arguments_for_cmake_are_words_as_the_shell_splits_them(self) -> None:
        for given in (["--cmake-args=-DA=1 -DB='2 3'"], ['--cmake-args="-DA=1', "-DB='2", "3'\""]):
            self.assertTrue(self.steps("librmm", *given)[0].endswith(" [-DA=1] [-DB=2 3]"), given)
        self.assertTrue(self.steps("librmm", "--cmake-args=")[0].endswith("[-DPER_THREAD_DEFAULT_STREAM=OFF]"))

    def test_what_it_does_not_know_is_refused_before_anything_runs(self) -> None:
        for wrong in (["lib"], ["librmm", ""], ["-gn"], ["--ptds=1"], ["--cmake-args"]):
            status, output = self.run_script(*wrong)
            self.assertEqual(1, status, wrong)
            self.assertRegex(output, "^build.sh: invalid option: ")
            self.assertEqual(1, output.count("\n"))

    def test_wrong_arguments_for_cmake_are_refused_before_anything_runs(self) -> None:
        for wrong in (["--cmake-args=-DA", "--cmake-args=-DB"], ["--cmake-args=-DA='1"], ['--cmake-args="-DA=1']):
            status, output = self.run_script("librmm", *wrong)
            self.assertEqual(1, status, wrong)
            self.assertRegex(output, "^build.sh: --cmake-args")
            self.assertEqual(1, output.count("\n"), output)

    def test_what_to_test_without_test_is_refused_before_anything_runs(self) -> None:
        for wrong in (["--all"], ["--all", "demo"], ["check", "librmm", "--all"], ["include/rmm/a.hpp"], ["test", "--all", "include/rmm/a.hpp"]):
            status, output = self.run_script(*wrong)
            self.assertEqual(2, status, wrong)
            self.assertRegex(output, "^build.sh: .*--all .*headers")
            self.assertEqual(1, output.count("\n"), output)

    def test_tests_of_a_header_are_built_and_run_alone(self) -> None:
        programs = Path(self.environment["PATH"].split(":")[0])
        for name, text in (("cmake", '[ "$1" = --version ] && echo cmake version 3.30.0\necho "cmake: $*" >&2\n'), ("ctest", 'echo "ctest: $*"\n')):
            (programs / name).write_text("#!/bin/sh\n" + text, encoding="utf-8")
            (programs / name).chmod(0o755)
        for header in ("mr/a.hpp", "mr/ab.hpp", "mr/untested.hpp"):
            (self.root / "include/rmm" / header).parent.mkdir(parents=True, exist_ok=True)
            (self.root / "include/rmm" / header).touch()
        (self.root / "build/test").mkdir(parents=True)
        (self.root / "build/test/test_sources.txt").write_text(
            "A_TEST tests/rmm/mr/a_tests.cpp\nA_SIM_TEST tests/rmm/mr/a_random_sim_tests.cpp\nOTHER_TEST tests/rmm/mr/ab_tests.cpp\n"
            "ANOTHER_TEST tests/rmm/mr/detail/a_tests.cpp\n", encoding="utf-8")
        environment = {"CMAKE_PREFIX_PATH": "/none", "CUDACXX": "nvcc"}
        status, output = self.run_script("test", "include/rmm/mr/a.hpp", **environment)
        self.assertEqual(0, status, output)
        self.assertRegex(output, r"cmake: --build \S+/build/test .*--target A_SIM_TEST A_TEST\n")
        self.assertRegex(output, r"ctest: .*--tests-regex \^\(A_SIM_TEST\|A_TEST\)\(_4_DEVICES\)\?\$\n")
        for header, why in (("untested", "no file of tests mirrors"), ("none", "there is no")):
            status, output = self.run_script("test", f"include/rmm/mr/{header}.hpp", **environment)
            self.assertEqual(1, status, output)
            self.assertIn(f"build.sh: {why} include/rmm/mr/{header}.hpp", output)

    def test_without_cmake_and_a_compiler_it_says_how_to_get_them(self) -> None:
        few = self.root.parent / "few"
        few.mkdir()
        for name in ("bash", "dirname"):
            (few / name).symlink_to(str(shutil.which(name)))
        status, output = self.run_script("librmm", PATH=str(few))
        self.assertEqual(1, status, output)
        for name, package in (("cmake", "cmake"), ("c++", "g++"), ("ninja", "ninja-build")):
            self.assertIn(f"{name}: Debian and Ubuntu: apt-get install {package}", output)
        (few / "cmake").write_text(SAYS_ITS_ARGUMENTS, encoding="utf-8")
        (few / "cmake").chmod(0o755)
        for name in ("printf", "xargs"):
            (few / name).symlink_to(str(shutil.which(name)))
        for variable in ("CXX", "CMAKE_TOOLCHAIN_FILE"):  # what was chosen is left to CMake
            self.steps("librmm", **{"PATH": str(few), "CMAKE_GENERATOR": "any", variable: "any"})
        self.steps("librmm", '--cmake-args="-G any -DCMAKE_CXX_COMPILER=any"', PATH=str(few))

    def test_a_compiler_that_is_missing_is_installed_for_its_turn_or_left_out(self) -> None:
        few = self.root.parent / "few"  # no compilers but the common ones
        few.mkdir()
        for name in ("bash", "cat", "chmod", "dirname", "env", "grep", "head", "mkdir", "nproc", "rm", "sed", "sort"):
            (few / name).symlink_to(str(shutil.which(name)))
        programs = dict.fromkeys(("ninja", "c++", "g++", "clang++", "nm", "ctest"), "")
        programs["cmake"] = '[ "$1" = --version ] && echo cmake version 3.30.0\necho "cmake: $*"\n'
        programs["python3"] = '[ "$3" != download ]\n'  # no headers of other CUDA releases
        programs["sudo"] = 'shift\nexec "$@"\n'
        programs["true"] = ""
        for name, text in programs.items():
            (few / name).write_text("#!/bin/sh\n" + text, encoding="utf-8")
            (few / name).chmod(0o755)
        said = 'echo "apt-get: $*" >&2\n'
        installs = ('[ "$1" = install ] || exit 0\n'
                    f'case "$*" in *g++-11) made="{few}/g++-11" ;; *clang-19) made="{few}/clang++-19" ;; *) exit 0 ;; esac\n'
                    ': >"$made"\nchmod +x "$made"\n')
        for apt_get in (said, said + installs):
            with self.subTest(apt_get):
                (few / "apt-get").write_text("#!/bin/sh\n" + apt_get, encoding="utf-8")
                (few / "apt-get").chmod(0o755)
                _, output = self.run_script("matrix", PATH=str(few), CMAKE_PREFIX_PATH="/none", CUDACXX="nvcc")
                self.assertRegex(output, r"apt-get: update .*\napt-get: install .* g\+\+-11\n")
                self.assertRegex(output, r"apt-get: update .*\napt-get: install .* clang-19\n")
                for name, compiler in (("gcc-11-cxx17-hidden-nvtx", "g++-11"), ("clang-19-cxx20", "clang++-19")):
                    self.assertEqual(apt_get == said, f"=== matrix {name}\nLeft out: there is no {compiler}.\n" in output, output)
                    self.assertEqual(apt_get == said, f"matrix/{name}/build" not in output, output)

    def test_help_comes_before_everything(self) -> None:
        for arguments in (["-h"], ["clean", "nonsense", "--help"]):
            status, output = self.run_script(*arguments)
            self.assertEqual(0, status)
            self.assertTrue(output.startswith("./build.sh [WHAT]"))

    def test_clean_empties_the_build_folders_and_does_nothing_else(self) -> None:
        for folder in ("build", "other", "python/rmm/build"):
            (self.root / folder / "deep").mkdir(parents=True)
            (self.root / folder / "deep/file").touch()
        self.assertEqual([], self.steps("clean", LIBRMM_BUILD_DIR="other"))
        for folder in ("build", "other", "python/rmm/build"):
            self.assertEqual([], list((self.root / folder).iterdir()), folder)
        self.assertTrue((self.root / "python/rmm/pyproject.toml").exists())

    def test_clean_does_not_delete_the_sources(self) -> None:
        (self.root / "link").symlink_to(self.root)
        for folder in (".", str(self.root.parent), "link", "python/.."):
            status, output = self.run_script("clean", LIBRMM_BUILD_DIR=folder)
            self.assertEqual(1, status)
            self.assertRegex(output, "^build.sh: clean would delete the sources")
            self.assertTrue((self.root / "python/rmm/pyproject.toml").exists())

    def count_lines(self, lines: int, ctest_status: int = 0) -> tuple[int, str]:
        """Returns status and output of `coverage` if the tests reach `lines` of 100 lines; stand-ins replace all programs it calls."""
        programs = Path(self.environment["PATH"].split(":")[0])
        (programs / "python3").unlink()
        shutil.copytree(REPOSITORY / "tools", self.root / "tools", ignore=shutil.ignore_patterns("__pycache__"))
        counted = [{"line_number": number, "count": int(number <= lines), "branches": []} for number in range(1, 101)]
        notes = {"current_working_directory": str(self.root), "files": [{"file": "include/rmm/a.hpp", "functions": [], "lines": counted}]}
        for name, text in (("cmake", '[ "$1" = --version ] && echo cmake version 3.30.0\n' + 'printf "cmake: %s\\n" "$*"\n'),
                           ("gcov", "cat a.gcno\n"), ("gcovr", "exit 1\n"),
                           ("ctest", f'echo "ctest: $*, $RMM_TEST_MOST_SEEDS seeds"; exit {ctest_status}\n')):
            (programs / name).write_text("#!/bin/sh\n" + text, encoding="utf-8")
            (programs / name).chmod(0o755)
        (self.root / "build/coverage").mkdir(parents=True)
        (self.root / "build/coverage/a.gcno").write_text(json.dumps(notes), encoding="utf-8")
        return self.run_script("coverage", CMAKE_PREFIX_PATH="/none", CUDACXX="nvcc")

    def test_coverage_runs_the_tests_and_prints_what_they_reach(self) -> None:
        status, output = self.count_lines(95)
        self.assertEqual(0, status, output)
        self.assertIn("--target counted_programs", output)
        self.assertRegex(output, "ctest: .*, 5 seeds")
        self.assertRegex(output, r"include/rmm +95 of 100 +95.0 % +0 of 0 +-")

    def test_coverage_fails_where_too_little_is_reached_or_a_test_fails(self) -> None:
        for lines, ctest_status, why in ((94, 0, "less than 95 % of the lines of include/rmm"), (100, 8, "failed")):
            with self.subTest(why):
                self.setUp()
                status, output = self.count_lines(lines, ctest_status)
                self.assertEqual(1, status, output)
                self.assertIn(f"  failed: {why}", output)

    def run_pytest(self, what: str, environment: str, needs: list[str], pytest: str) -> str:
        """Returns the output of build.sh `what`, which tests the Python package; stand-ins replace the programs of its environment."""
        programs = self.root / "build" / environment / "bin"
        programs.mkdir(parents=True)
        (programs.parent / "complete").write_text("rmm-engine: " + " ".join(needs), encoding="utf-8")
        shutil.copytree(REPOSITORY / "tools", self.root / "tools", ignore=shutil.ignore_patterns("__pycache__"))
        others = self.root.parent / "programs"
        for folder, name, text in ((programs, "python", SAYS_ITS_ARGUMENTS), (programs, "pytest", pytest),
                                   (others, "cmake", "#!/bin/sh\necho cmake version 3.30.0\n"),
                                   *((others, name, "#!/bin/sh\n") for name in ("clang++", "ctest", "ld.lld"))):
            (folder / name).write_text(text, encoding="utf-8")
            (folder / name).chmod(0o755)
        return self.run_script(what, CMAKE_PREFIX_PATH="/none", CUDACXX="nvcc")[1]

    def sanitize_python(self, pytest: str) -> str:
        return self.run_pytest("python-asan", "python-asan/environment", [*python_needs("BUILD"), *python_needs("TEST")], pytest)

    def test_python_is_tested_under_the_sanitizers(self) -> None:
        output = self.sanitize_python('#!/bin/sh\necho "pytest: $* with $LD_PRELOAD"\n')
        self.assertRegex(output, r"\[wheel\] .*CMAKE_CXX_FLAGS=\S* -fsanitize=address,undefined ")
        self.assertRegex(output, "pytest: .* with .*libasan.so .*libstdc\\+\\+.so")
        self.assertIn("test_summary.py] [python asan|passed|", output)

    def test_any_report_of_a_sanitizer_is_a_failure(self) -> None:
        wrong = '#!/bin/sh\necho "something is wrong" >"${UBSAN_OPTIONS##*log_path=}.17"\n'
        output = self.sanitize_python(wrong)
        self.assertIn("something is wrong", output)
        self.assertRegex(output, r"test_summary.py\] \[python asan\|failed: \S+/ubsan.17\|")

    def test_the_package_is_tested_beside_the_library(self) -> None:
        backend = "cuda" if os.path.exists("/dev/nvidiactl") else "sim"
        needs = [*python_needs("BUILD"), *python_needs("TEST")[:2]]
        for pytest, ends in (("echo pytest is called", rf"python {backend}\|passed"), ("exit 1", rf"python {backend}\|failed"),
                             ("kill -9 $PPID", r"python\|did not end")):
            with self.subTest(pytest):
                self.setUp()
                output = self.run_pytest("test", f"test/python-{backend}/environment", needs, f"#!/bin/sh\n{pytest}\n")
                self.assertRegex(output, rf"test_summary.py\] \[test\|passed\|.*\[{ends}\|")
                self.assertEqual(pytest.startswith("echo"), "\npytest is called\n" in output)


if __name__ == "__main__":
    unittest.main()
