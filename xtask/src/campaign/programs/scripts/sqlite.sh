# Transactions that insert, change and delete blobs, and keep a table of sums. A commit in mode `delete` is durable when
# the journal's name is gone for good: `synchronous=EXTRA` syncs the directory for that.

database=$FILES/database
mode=${NAME#sqlite-}
case $mode in
delete) synchronous=EXTRA ;;
*) synchronous=FULL ;;
esac

prepare() {
    sqlite3 -bail "$database" "PRAGMA journal_mode=$mode; PRAGMA synchronous=$synchronous;
        CREATE TABLE sums(n INTEGER, bytes INTEGER);
        CREATE TABLE blobs(n INTEGER PRIMARY KEY, hash BLOB, bytes BLOB);
        CREATE INDEX hashes ON blobs(hash);
        INSERT INTO sums VALUES(0, 0);"
    echo 0 > "$acknowledged"
}

statements() {
    printf '%s\n' '.output /dev/null' "PRAGMA synchronous=$synchronous; PRAGMA cache_size=-64;" \
        'PRAGMA wal_autocheckpoint=50;' '.output stdout'
    while :; do
        echo "BEGIN IMMEDIATE;
            UPDATE sums SET n = n + 1;
            INSERT INTO blobs(n, bytes) SELECT n, randomblob(1 + abs(random()) % 20000) FROM sums;
            UPDATE blobs SET bytes = randomblob(length(bytes) / 2 + 1) WHERE n = (SELECT n FROM sums) - 50;
            UPDATE blobs SET hash = sha3(bytes) WHERE n IN (SELECT n FROM sums UNION SELECT n - 50 FROM sums);
            DELETE FROM blobs WHERE n = (SELECT n FROM sums) - 200;
            UPDATE sums SET bytes = (SELECT sum(length(bytes)) FROM blobs);
            COMMIT;
            SELECT n FROM sums;"
    done
}

# A number is printed, and so acknowledged, when its transaction has been committed.
load() {
    statements | stdbuf -oL sqlite3 -bail "$database" >> "$acknowledged" || fail "sqlite3 has ended"
}

ask() {
    sqlite3 -bail "$database" "$1" || fail "sqlite3 cannot answer: $1"
}

verify() {
    last=$(tail -n 1 "$acknowledged")
    [ "$(ask 'PRAGMA integrity_check;')" = ok ] || fail "integrity_check: $(ask 'PRAGMA integrity_check;')"
    [ "$(ask 'PRAGMA journal_mode;')" = "$mode" ] || fail "another journal mode: $(ask 'PRAGMA journal_mode;')"
    found=$(ask 'SELECT n FROM sums;')
    [ "$found" -ge "$last" ] || fail "transaction $last was acknowledged, and $found is the last one"
    [ "$(ask 'SELECT coalesce(max(n), 0) = (SELECT n FROM sums) FROM blobs;')" = 1 ] || fail "a part of a transaction"
    [ "$(ask 'SELECT coalesce(sum(length(bytes)), 0) = (SELECT bytes FROM sums) FROM blobs;')" = 1 ] || fail "other sums"
    [ "$(ask 'SELECT count(*) FROM blobs WHERE hash IS NOT sha3(bytes);')" = 0 ] || fail "other bytes"
    echo "$last transactions acknowledged, $found found; integrity_check ok"
}
