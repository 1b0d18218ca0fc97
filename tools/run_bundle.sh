#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0

# run_tests.sh [NAME]...: runs the test programs beside it, all or the named ones, on this machine's GPUs. Its last line
# is `N passed, N failed, N skipped`, counted in test cases. The exit status is 1 if any failed. Each program's output
# is kept in $LOGS (default: logs, beside this script). Needs bash, the usual text tools, the driver and the C library.
#
# TEST_TOOL is a command that runs each program: TEST_TOOL="compute-sanitizer --tool memcheck --error-exitcode 9".

set -uo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
logs="${LOGS:-$here/logs}"
mkdir -p "$logs" || exit 1
export RMM_TEST_TRACES="$here/traces"

programs=()
read -r -a tool <<<"${TEST_TOOL:-}"
if [[ $# -gt 0 ]]; then
  for name in "$@"; do
    programs+=("$here/gtests/$name")
  done
else
  for program in "$here"/gtests/*; do
    if [[ $program != *.so ]]; then programs+=("$program"); fi  # programs load the *.so at run time
  done
fi

# count LOG TEXT: prints the number of lines of LOG that match TEXT, a basic regular expression.
count() { grep -c -- "$2" "$1" || true; }

passed=0
failed=0
skipped=0
failures=()
for program in "${programs[@]}"; do
  name="${program##*/}"
  log="$logs/$name.log"
  begin=$SECONDS
  if command -v timeout >/dev/null; then
    timeout --kill-after=10 "${TEST_TIMEOUT:-600}" "${tool[@]}" "$program" --gtest_color=no >"$log" 2>&1 </dev/null
  else
    "${tool[@]}" "$program" --gtest_color=no >"$log" 2>&1 </dev/null
  fi
  status=$?

  # A case that began but neither passed nor was skipped has failed, even if the program ended before it could say so.
  begun=$(count "$log" '^\[ RUN      \] ')
  good=$(count "$log" '\[       OK \] .* ([0-9]* ms)$')
  left_out=$(count "$log" '\[  SKIPPED \] .* ([0-9]* ms)$')
  bad=$((begun - good - left_out))
  if [[ $bad -eq 0 && ($status -ne 0 || $begun -eq 0) ]]; then bad=1; fi
  passed=$((passed + good))
  failed=$((failed + bad))
  skipped=$((skipped + left_out))
  printf '%-36s %5d passed %5d failed %5d skipped %5d s\n' "$name" "$good" "$bad" "$left_out" "$((SECONDS - begin))"
  if [[ $bad -gt 0 ]]; then
    failures+=("$name (status $status, $log)")
    grep '^\[  FAILED  \] .*ms)$' "$log"
    if [[ $status -ne 1 ]]; then tail -n 5 "$log"; fi
  fi
done

if [[ ${#failures[@]} -gt 0 ]]; then
  printf '\nfailed programs:\n'
  printf '  %s\n' "${failures[@]}"
fi
printf '\n%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
[[ $failed -eq 0 && $passed -gt 0 ]]
