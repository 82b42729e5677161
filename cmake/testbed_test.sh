#!/usr/bin/env bash
# How ./testbed answers what it cannot do: the exit code, and one sentence instead of a trace. Installs nothing.
# testbed_test.sh TESTBED WORK_DIR
set -euo pipefail
readonly testbed=$1 work=$2
failures=0

# expect EXIT_CODE LINES(count, or "any") PATTERN COMMAND...
expect() {
  local -r code=$1 lines=$2 pattern=$3
  shift 3
  local output actual=0
  output=$("$@" 2>&1) || actual=$?
  if [[ $actual != "$code" ]] || ! grep -qE -e "$pattern" <<<"$output" ||
    { [[ $lines != any ]] && [[ $(wc -l <<<"$output") != "$lines" ]]; }; then
    printf 'FAILED: %s\n  expected exit code %s, %s line(s), /%s/; got %s:\n%s\n' "$*" "$code" "$lines" "$pattern" "$actual" "$output"
    failures=$((failures + 1))
  fi
}

# A machine that has this script's own tools and nothing else: no compiler, no CMake, no apt-get.
rm -rf "$work"
mkdir -p "$work/bin"
for tool in awk bash cat df dirname env grep head id mkdir nproc paste realpath sed sort; do ln -s "$(type -P "$tool")" "$work/bin/$tool"; done
# shellcheck disable=SC2317  # called through expect
bare() { env -i PATH="$work/bin" "$work/bin/bash" "$testbed" "$@"; }

readonly commands=(run test sweep accuracy tune report compare which profile sanitize check)
for command in "${commands[@]}"; do
  expect 0 any "^  $command " "$testbed" help
  expect 0 any "^Usage: ./testbed $command" "$testbed" "$command" --help
  expect 0 any "^Usage: ./testbed $command" bare "$command" -h
done
expect 2 1 "unknown command 'bogus'" "$testbed" bogus
for command in run test accuracy tune profile check; do
  expect 2 1 "unknown argument '--bogus'; see ./testbed $command --help" "$testbed" "$command" --bogus
done
expect 2 1 "-R needs a value" "$testbed" test -R
expect 2 1 "needs a value" "$testbed" profile --study
# A typo is refused before anything is installed or built: here neither could be.
for command in run accuracy; do
  expect 2 1 "unknown variant 'nope'; known: auto butterflies cpu " bare "$command" --variant nope
  expect 2 1 "^testbed: --output needs a value" bare "$command" --output ''
  expect 2 1 "is a file, not a folder" bare "$command" --output "$testbed/below"
done
# bash ends at a local variable that is a read-only global, which only the run itself would show.
while read -r name; do
  ! grep -nE "^ *local( -[a-z]+)? ([a-z_=]+ )*$name(=| |$)" "$testbed" ||
    { echo "FAILED: testbed has a local variable with the name of the read-only $name"; failures=$((failures + 1)); }
done < <(grep -oE '^readonly [a-z_]+' "$testbed" | cut -d ' ' -f 2)
for command in run sweep; do
  expect 2 1 "unknown grid 'nope': no such file, and the built-in grids are .*headline host" bare "$command" --grid nope
done
expect 2 1 "unknown variant 'nope'" bare sweep --grid smoke --variant=cpu,nope
expect 2 1 "unknown argument '--bogus'; see ./testbed sweep --help" bare sweep --bogus=1
expect 2 1 "unknown dtype 'f8'; known: f16 " bare sweep --dtype f16,f8
expect 2 1 "unknown mode 'warm'; known: replay replay_pdl alternating cold host$" bare sweep --mode warm
expect 2 1 "unknown placement 'sideways'; known: in out$" bare sweep --placement=sideways
expect 1 any "missing: .*cmake" bare sweep --n 16..64 --dtype=bf16 --mode cold --placement out --variant cpu --benchmark_filter=x --dry-run
expect 2 1 "unknown variant 'nope'" bare profile --variant nope
expect 2 1 "unknown grid 'nope'" bare profile --grid nope
expect 2 1 "unknown preset 'nosuch'; known: release ci host" bare test --preset nosuch
[[ ! -e $(dirname "$testbed")/build/nosuch ]] || { echo "FAILED: an unknown preset left a folder"; failures=$((failures + 1)); }
expect 0 any "^Usage" bare sweep -- --help
# Without a GPU `test` builds the host's part and says what is left out; with CI=true everything.
# shellcheck disable=SC2317  # called through expect
in_ci() { env -i CI=true PATH="$work/bin" "$work/bin/bash" "$testbed" "$@"; }
if ! compgen -G '/dev/nvidia[0-9]*' >/dev/null; then
  expect 1 3 "no CUDA device: kernels are not compiled, .*; ./testbed test --preset release compiles them" bare test
  expect 1 2 "a first build and test takes about .* minutes .* GB of disk" bare test --preset host
fi
expect 1 2 "a first build and test takes about 35 minutes .* 1.5 GB of disk" in_ci test
expect 1 2 "a first build and test takes about 35 minutes .* 1.5 GB of disk" bare test --preset release
for command in run test sweep; do
  expect 1 any "missing: .*cmake.* no apt-get" bare "$command"
done
expect 2 1 "shellcheck: not run, .* is missing" bare check shellcheck
if [[ ! -x /usr/local/cuda/bin/ncu ]]; then
  expect 2 1 "ncu was not found" bare profile --variant naive --problem f16/n64/r64
fi
if [[ ! -x /usr/local/cuda/bin/compute-sanitizer ]]; then
  expect 2 1 "compute-sanitizer was not found" bare sanitize
fi

# A checkout in which nothing can be written, and one that no git knows.
mkdir -p "$work/checkout"
cp "$testbed" "$work/checkout/testbed"
for name in experiments variants analysis CMakePresets.json; do ln -s "$(dirname "$testbed")/$name" "$work/checkout/$name"; done
touch "$work/checkout/build"
for command in run test sweep; do
  expect 2 1 "checkout/build cannot be written, and that is where fwht is built" bash "$work/checkout/testbed" "$command"
done
# shellcheck disable=SC2016,SC2317  # expanded by the bash it starts; called through expect
alone() { GIT_CEILING_DIRECTORIES=$work PATH=$2 "$BASH" -c 'source "$1"; say_origin' alone "$1"; }
expect 0 1 "^testbed: no commit is known here \(git is missing\): results are marked as dirty" alone "$work/checkout/testbed" "$work/bin"
if type -P git >/dev/null; then
  expect 0 1 "^testbed: no commit is known here \(fatal: not a git repository.*\): results are marked as dirty" alone "$work/checkout/testbed" "$PATH"
fi

# What the commands say at their end, from files as they find them.
# shellcheck disable=SC2317  # called through expect
of_testbed() { bash -c 'testbed=$1; directory=$2; shift 2; source "$testbed"; "$@"' of_testbed "$testbed" "$work" "$@"; }
cat >"$work/tests.csv" <<'TEXT'
name,label,status,seconds
A.b,host,passed,0.1
"C.d/(1, 2)",host,failed,0.1
E.f,gpu,skipped,0
E.g,gpu,skipped,0
H.i,host,skipped,0
TEXT
expect 0 1 "^2 ran, 1 failed, 3 skipped$" of_testbed count_tests ""
expect 0 1 "^2 ran, 1 failed, 3 skipped: no CUDA device$" of_testbed count_tests "   3 no CUDA device"
expect 0 1 "^2 ran, 1 failed, 3 skipped: no CUDA device, and other reasons$" of_testbed count_tests "   2 no CUDA device
   1 no torch"
printf 'variant,dtype,n,rows,mode,status,fraction_of_limit,settings\ncpu,f16,8,2,host,ok,0.25,"{""a"": 1}"\nwrong,f16,8,2,host,failed,0.9,\nfast,f32,16,4,host,ok,0.75,{}\ndisturbed,f32,16,4,host,ok,2.0,{}\n' >"$work/results.csv"
expect 0 1 "^nearest to the limit: fast on f32/n16/r4 .host., 75 % of a copy$" of_testbed nearest_to_limit "$work/results.csv"
printf 'Collecting numpy\nERROR: SSLError(SSLCertVerificationError: certificate verify failed)\nERROR: No matching distribution\n' >"$work/log"
expect 0 1 "certificate verify failed" of_testbed cause_in "$work/log"
printf 'E: Unable to locate package x\n' >"$work/log"
expect 0 1 "^E: Unable to locate package x$" of_testbed cause_in "$work/log"

# Cases inside tests: of a GoogleTest program on the GPU, and of a pytest file.
mkdir -p "$work/cases"
cat >"$work/cases/gtest" <<'TEXT'
#!/bin/sh
case "$*" in
  *list_tests*) printf 'SuiteGpu.\n  One\n  Two/0  # GetParam() = 2\n' ;;
  *) echo "ran $1"; exit 77 ;;
esac
TEXT
cat >"$work/cases/pytest" <<'TEXT'
#!/bin/sh
case "$*" in
  *--collect-only*) printf 'test_x.py::test_good\ntest_x.py::test_bad[1]\n\n2 tests collected\n' ;;
  *) echo "ran $* with $A"; case "$*" in *bad*) exit 1 ;; esac ;;
esac
TEXT
chmod +x "$work/cases/gtest" "$work/cases/pytest"
cat >"$work/cases/ctest.json" <<TEXT
{"tests": [
  {"name": "x", "command": ["$work/cases/pytest", "no:cacheprovider", "test_x.py"],
   "properties": [{"name": "ENVIRONMENT", "value": ["A=b"]}, {"name": "WORKING_DIRECTORY", "value": "$work"}]},
  {"name": "s.gpu.1", "command": ["$work/cases/gtest", "--gtest_filter=*Gpu*"], "properties": [{"name": "LABELS", "value": ["gpu"]}]},
  {"name": "s.gpu.2", "command": ["$work/cases/gtest", "--gtest_filter=*Gpu*"], "properties": [{"name": "LABELS", "value": ["gpu"]}]},
  {"name": "bare"}]}
TEXT
# shellcheck disable=SC2317  # called through expect
cases() { python3 "$(dirname "$testbed")/cmake/run_cases.py" "$work/cases" "$1"; }
expect 0 1 "^ran no:cacheprovider test_x.py::test_good with b$" cases test_good
expect 1 1 "^ran no:cacheprovider test_x.py::test_bad.1. with b$" cases test_bad
expect 0 1 "^ran --gtest_filter=SuiteGpu.Two/0$" cases 'SuiteGpu\.Two'
expect 2 any "^$" cases nothing
exit $((failures > 0))
