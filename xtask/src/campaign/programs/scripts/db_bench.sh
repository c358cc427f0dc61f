# RocksDB's own load: databases that are filled by synced writes and overwritten, one after the other. One that is filled
# is acknowledged with all of its keys. The last two stay.

keys=2000

bench() {
    db_bench --db="$FILES/store-$1" --num=$keys --sync=1 --write_buffer_size=131072 --value_size=400 \
        --verify_checksum=1 "$2" --benchmarks="$3" > "$BESIDE/bench.log" 2>&1 || fail "$(tail -n 20 "$BESIDE/bench.log")"
}

prepare() {
    echo 0 > "$acknowledged"
}

load() {
    n=$(tail -n 1 "$acknowledged")
    [ "$n" -eq 0 ] || bench "$n" --use_existing_db=1 overwrite
    while :; do
        n=$((n + 1))
        rm -rf "$FILES/store-$n"
        bench $n --use_existing_db=0 fillseq
        acknowledge $n
        bench $n --use_existing_db=1 overwrite
        rm -rf "$FILES/store-$((n - 2))"
    done
}

verify() {
    last=$(tail -n 1 "$acknowledged")
    for n in $((last - 1)) "$last"; do
        [ "$n" -ge 1 ] || continue
        ldb --db="$FILES/store-$n" checkconsistency > "$BESIDE/checked" 2>&1 || fail "$(cat "$BESIDE/checked")"
        bench "$n" --use_existing_db=1 readseq
        found=$(ldb --db="$FILES/store-$n" scan --no_value --hex 2>> "$BESIDE/bench.log" | wc -l)
        [ "$found" -eq $keys ] || fail "store $n has $found keys and not $keys"
    done
    echo "$last databases acknowledged, the last two found with all $keys keys; checkconsistency ok"
}
