#!/bin/sh
# Runs what is staged beside this script. Needs an NVIDIA driver; nothing else of CUDA, and no Rust.
#   run.sh [--] [ARGS…]       all tests, then the examples; ARGS go to every test program
#   run.sh --bench            the programs that take times, other libraries' scripts where Python has torch, the engine with the models
#                             that are in MEMTIER_CACHE, and all of it beside memtier's bars
#   run.sh --emulated         as the first, on the emulated driver in driver/
#   run.sh --sanitize         all tests under compute-sanitizer's memcheck, those of kernels under its racecheck too (fewer shapes)
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

# Programs whose kernels share memory between threads, or whose threads could run into each other.
has_kernels() {
    case "$1" in *decode | *prefill | *kv8 | *quant* | *scaled | *sample | *project | *heads | *small_ops | *kernel_macro) return 0 ;; esac
    return 1
}

# sanitize PROGRAM ARGS…: a tool that watches the driver has CUPTI to itself, and slows kernels by some thousand times: no times are held,
# and there are as many shapes as on an emulated device. One test has a kernel that faults, which is what these tools look for.
sanitize() {
    checked=$1
    shift
    export MEMTIER_FEW_SHAPES=1
    for tool in memcheck racecheck; do
        [ $tool = racecheck ] && ! has_kernels "$checked" && continue
        one "$tool-$checked" compute-sanitizer --tool $tool --error-exitcode 9 --report-api-errors no "./$checked" --test-threads=1 \
            --skip a_kernel_that_faults "$@"
    done
}

for program in lib-* test-*; do
    [ -x "$program" ] || continue
    case $mode in
    # What a test that passes has said tells whether it was skipped.
    test) one "$program" "./$program" --test-threads=1 --show-output "$@" ;;
    bench) takes_times "$program" && one "$program" "./$program" --nocapture --test-threads=1 "$@" ;;
    sanitize) takes_times "$program" || sanitize "$program" "$@" ;;
    esac
done
if [ $mode = test ] && [ $# -eq 0 ]; then
    for program in example-*; do
        [ -x "$program" ] && one "$program" "./$program" kernels
    done
fi
# row NAME FLAGS…: what a second of the engine gives.
row() {
    said=$1
    shift
    rate=$(./memtier-engine bench --device cuda:0 --json --no-prefix-cache "$@" 2>&1) || rows_failed=1
    echo "$said: $(echo "$rate" | tail -1)"
}

# engine FILE: weights in bf16, in the file's tiles, and in bf16 with rows that do not depend on those beside them; then kinds of keys and
# values, and prompts by cuBLASLt.
engine() {
    rows_failed=0 file=$1 many="--graphs 64 --max-batch 64 --max-slots 64 --max-seq-len 1024 --budget 8GiB --prefill 128 --decode 256"
    long="--max-seq-len 8448 --prefill-chunk 8192 --prefill 8192 --graphs 1 --max-batch 1 --budget 8GiB --decode 10"
    for weights in bf16 file "bf16 --batch-invariant"; do
        row "$weights, one request, contexts of 500 to 1000" --model-file "$file" --weights $weights --graphs 1 --prefill 500 --decode 500
        row "$weights, one request, contexts of 20 to 120" --model-file "$file" --weights $weights --graphs 1 --prefill 20 --decode 100
        row "$weights, four requests" --model-file "$file" --weights $weights --graphs 4 --max-slots 4 --max-seq-len 1024 --prefill 128 --decode 256
        row "$weights, 64 requests" --model-file "$file" --weights $weights $many
        row "$weights, a prompt of 8192" --model-file "$file" --weights $weights $long
    done
    row "bf16 --no-cublaslt, a prompt of 8192" --model-file "$file" --weights bf16 --no-cublaslt $long
    for kind in fp8 q8_0 nvfp4; do
        row "keys and values of $kind, one request, contexts of 500 to 1000" --model-file "$file" --kv-type $kind --graphs 1 --prefill 500 --decode 500
        row "keys and values of $kind, 64 requests" --model-file "$file" --kv-type $kind $many
    done
    return $rows_failed
}

if [ $mode = bench ]; then
    for file in "${MEMTIER_CACHE:-$HOME/.cache/memtier}"/*.gguf; do
        [ -f "$file" ] && [ -x ./memtier-engine ] && one "$(basename "$file" .gguf)-engine" engine "$file"
    done
    python=${MEMTIER_PYTHON:-python3}
    if "$python" -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null; then
        for script in peers/*_peers.py; do
            one "$(basename "$script")" "$python" "$script"
        done
    else
        echo "skipped: other libraries, because $python has no torch with CUDA (MEMTIER_PYTHON names another one)" | tee -a "$table"
    fi
    echo
    grep -hE '[0-9] (us|ms|GB/s|TFLOP/s|tok/s|x)\b' out/*.log
    echo
    "$python" peers/bars.py >out/bars.md 2>&1 || failed=1
    cat out/bars.md
fi
echo
cat "$table"
exit $failed
