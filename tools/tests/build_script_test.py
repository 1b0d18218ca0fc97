# SPDX-License-Identifier: Apache-2.0
"""Tests of the command line of build.sh, with programs in place of cmake and python3 that say what they were asked for."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent.parent
SAYS_ITS_ARGUMENTS = '#!/bin/sh\nprintf "%s:" "${0##*/}"\nprintf " [%s]" "$@"\necho\n'


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
        """Exit status, and output of both kinds."""
        done = subprocess.run(
            [str(self.root / "build.sh"), *arguments],
            cwd=self.root, env={**self.environment, **environment}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            encoding="utf-8", check=False)
        return done.returncode, done.stdout

    def steps(self, *arguments: str, **environment: str) -> list[str]:
        """What the programs were asked for, the question what Python has left out."""
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

    def test_quick_without_test_is_refused_before_anything_runs(self) -> None:
        for wrong in (["--quick"], ["--quick", "demo"], ["check", "librmm", "--quick"]):
            status, output = self.run_script(*wrong)
            self.assertEqual(2, status, wrong)
            self.assertRegex(output, "^build.sh: --quick .*./build.sh test --quick")
            self.assertEqual(1, output.count("\n"), output)

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


if __name__ == "__main__":
    unittest.main()
