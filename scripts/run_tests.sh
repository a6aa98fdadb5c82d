#!/usr/bin/env bash
# Runs the tests, and those that failed once more, alone: this file alone decides what a failure is.
#
#   scripts/run_tests.sh PYTEST_ARGUMENTS...     WORKERS processes share the tests, by file
#
# Hundreds of tests start real servers, two at a time beside Spark and a browser. One that fails beside others
# and passes alone is not a broken build, but it is not well either: it is named at the end and kept in
# var/unstable.txt. One that fails alone, too, fails the build, and so does anything that is not a failed test.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bin=.venv/bin failed=.pytest_cache/v/cache/lastfailed

# What failed in earlier runs is of no interest to this one.
rm -f "$failed" var/unstable.txt
"$bin/pytest" -n "${WORKERS:-2}" --dist loadfile "$@"
status=$?
# 1: tests ran and some of them failed; or too little is covered, and then there is nothing to run again.
if [ $status -ne 1 ] || ! [ -s "$failed" ]; then exit $status; fi

names=$("$bin/python" -c 'import json, sys; print("\n".join(json.load(open(sys.argv[1]))))' "$failed")
printf 'these failed and run once more, alone:\n%s\n' "$names"
"$bin/pytest" --last-failed --last-failed-no-failures none || exit
# A failed test and too little coverage look the same from outside.
for argument in "$@"; do
    case $argument in
        --cov-fail-under=*) "$bin/coverage" report --fail-under="${argument#*=}" >/dev/null || exit ;;
    esac
done
mkdir -p var
echo "$names" >var/unstable.txt
printf 'UNSTABLE, passed only alone (var/unstable.txt):\n%s\n' "$names"
