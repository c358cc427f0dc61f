# LevelDB and RocksDB: batches, synced and then acknowledged. `store.py`, which the campaign puts beside this, does it.

store=$FILES/store

library() {
    PATH="$PATH:/sbin" ldconfig -p | sed -n "s|.*lib$NAME\.so.* => ||p" | head -n 1
}

store() {
    /usr/bin/python3 "$BESIDE/store.py" "$1" "$NAME" "$(library)" "$store" "$acknowledged" "$SEED"
}

prepare() {
    : > "$acknowledged"
}

load() {
    store load
}

verify() {
    if [ "$NAME" = rocksdb ]; then
        ldb --db="$store" checkconsistency > "$BESIDE/checked" 2>&1 || fail "$(cat "$BESIDE/checked")"
    fi
    store verify
}
