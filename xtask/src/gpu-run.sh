#!/bin/sh
# Runs what is staged beside this script. Needs an NVIDIA driver; nothing else of CUDA, and no Rust.
#   run.sh [--] [ARGS…]       all tests, then the examples; ARGS go to every test program
#   run.sh --bench            the programs that take times, and other libraries' scripts where Python has torch
#   run.sh --emulated         as the first, on the emulated driver in driver/
#   run.sh --sanitize         all tests under compute-sanitizer's memcheck
# Everything that was said is in out/; a short table comes last.
cd "$(dirname "$0")" || exit 1
mode=test
case "$1" in
--bench | --sanitize | --emulated) mode=${1#--}; shift ;;
esac
[ "$1" = "--" ] && shift
mkdir -p out && rm -f out/*.log
# Without a device the tests say so and pass; here that would be a wrong answer.
export MEMTIER_REQUIRE_GPU=1 MEMTIER_KERNELS="$PWD/kernels" MEMTIER_FIXTURES="$PWD/fixtures"
# Where a toolkit has CUPTI: what counts the process's allocations.
[ -d /usr/local/cuda/extras/CUPTI/lib64 ] && export LD_LIBRARY_PATH="$LD_LIBRARY_PATH:/usr/local/cuda/extras/CUPTI/lib64"
# Without a device of its own: the emulated one, before any that is installed.
if [ "$mode" = emulated ]; then
    export LD_LIBRARY_PATH="$PWD/driver:$LD_LIBRARY_PATH"
    mode=test
fi
failed=0
table=out/table.txt
: >"$table"

# one NAME COMMAND…: runs it on the terminal and into its log; a line of the table says how it went.
one() {
    name=$1
    shift
    echo "== $name"
    start=$(date +%s)
    { "$@" 2>&1; echo $? >out/code; } | tee "out/$name.log"
    code=$(cat out/code)
    seconds=$(($(date +%s) - start))
    # libtest's last line, where the program is one of tests.
    counts=$(sed -n 's/^test result: [a-zA-Z]*\. \([0-9]*\) passed; \([0-9]*\) failed; \([0-9]*\) ignored.*/\1 passed, \2 failed, \3 ignored/p' "out/$name.log" | tail -1)
    skipped=$(grep -ci 'skipped: ' "out/$name.log")
    [ "$skipped" -gt 0 ] && counts="$counts, $skipped skipped"
    verdict=ok
    [ "$code" -eq 0 ] || { verdict="FAILED ($code)"; failed=1; }
    printf '%-34s %-12s %4s s  %s\n' "$name" "$verdict" "$seconds" "$counts" >>"$table"
}

# Programs that only take times: for --bench.
takes_times() {
    case "$1" in *times* | *bars* | *bare*) return 0 ;; esac
    return 1
}

for program in lib-* test-*; do
    [ -x "$program" ] || continue
    case $mode in
    test) one "$program" "./$program" --test-threads=1 "$@" ;;
    bench) takes_times "$program" && one "$program" "./$program" --nocapture --test-threads=1 "$@" ;;
    # A tool that watches the driver has CUPTI to itself, and takes its time: no times are held.
    sanitize) takes_times "$program" || one "$program" compute-sanitizer --tool memcheck --error-exitcode 9 \
        --report-api-errors no "./$program" --test-threads=1 "$@" ;;
    esac
done
if [ $mode = test ] && [ $# -eq 0 ]; then
    for program in example-*; do
        [ -x "$program" ] && one "$program" "./$program" kernels
    done
fi
if [ $mode = bench ]; then
    python=${MEMTIER_PYTHON:-python3}
    if "$python" -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null; then
        for script in peers/*.py; do
            [ -f "$script" ] && one "$(basename "$script")" "$python" "$script"
        done
    else
        echo "skipped: other libraries, because $python has no torch with CUDA (MEMTIER_PYTHON names another one)" | tee -a "$table"
    fi
    echo
    grep -hE '[0-9] (us|ms|GB/s|TFLOP/s|tok/s|x)\b' out/*.log
fi
echo
cat "$table"
exit $failed
