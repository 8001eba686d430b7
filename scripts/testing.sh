# Shared functions of scripts/test and .ci/run, on top of lib.sh.

# prepare_tests PRESET [ninja arguments]: installs what is missing and builds.
prepare_tests() {
  : >"$log"
  install_missing "${build_packages[@]}" "${test_packages[@]}"
  say "$1: building"
  build_preset "$@" && return
  grep -E -A 8 'error:|FAILED:|CMake Error' "$log" | head -n 60
  fail "$1: the build failed: see $log"
}

# run_tests PRESET [ctest arguments]: runs them, and ends with the counts.
run_tests() {
  local preset=$1 status=0 began=$SECONDS
  shift
  rm -f "$(report_of "$preset")"
  # Most tests wait most of the time, so many more run than there are processors.
  (cd "$root" && ctest --preset "$preset" -j $((4 * $(nproc))) \
    --output-junit "$(report_of "$preset")" "$@") </dev/null || status=$?
  read_counts "$preset" $((SECONDS - began))
  say "$counts"
  return "$status"
}

report_of() { echo "$root/build/tests-$1.xml"; }

# read_counts PRESET SECONDS: leaves the counts of its last run in $counts.
read_counts() {
  local head tests failed skipped report
  report=$(report_of "$1")
  counts="$1: no tests ran"
  [[ -e $report ]] || return 0
  head=$(head -n 12 "$report" | tr '\n' ' ')
  count_of() { [[ $head =~ [[:space:]]$1=\"([0-9]+)\" ]] && echo "${BASH_REMATCH[1]}"; }
  tests=$(count_of tests) failed=$(count_of failures)
  skipped=$(($(count_of skipped) + $(count_of disabled)))
  counts="$1: $((tests - failed - skipped)) passed, $failed failed, $skipped skipped in $2 s"
}

# show_failures PRESET: prints the failed tests of its last run with their output.
show_failures() {
  local report
  report=$(report_of "$1")
  [[ ! -e $report ]] || sed -n '/<testcase .*status="fail"/,/<\/testcase>/p' "$report" | cut -c 1-400
}
