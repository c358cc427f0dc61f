# PostgreSQL with pgbench, and a client that inserts one row at a time and writes down what was acknowledged. It refuses
# to run as root: by mount it has a user of its own. A library works only for the user who has mounted, so that there
# root is called postgres, in a namespace of users.

data=$FILES/data
run=$BESIDE/run
bin=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -n 1)
export PGHOST="$run" PGUSER=postgres PGDATABASE=postgres PGOPTIONS='-c client_min_messages=warning'

as_postgres() {
    if [ "$WITH" = library ]; then
        unshare --user --map-user="$(id -u postgres)" --map-group="$(id -g postgres)" -- "$@"
    else
        setpriv --reuid=postgres --regid=postgres --clear-groups -- "$@"
    fi
}

prepare() {
    chmod 755 "$BESIDE" "$FILES"
    mkdir -p "$run" "$data"
    chmod 700 "$data"
    [ "$WITH" = library ] || chown postgres:postgres "$run" "$data"
    as_postgres "$bin/initdb" --pgdata "$data" --auth trust --username postgres --data-checksums --locale C > "$run/initdb.log"
    cat >> "$data/postgresql.conf" <<SETTINGS
listen_addresses = ''
unix_socket_directories = '$run'
fsync = on
full_page_writes = on
synchronous_commit = on
shared_buffers = 16MB
max_wal_size = 32MB
min_wal_size = 32MB
checkpoint_timeout = 30s
dynamic_shared_memory_type = mmap
autovacuum_naptime = 1s
SETTINGS
    start
    "$bin/pgbench" --initialize --quiet --scale 2 2> "$run/pgbench.log"
    "$bin/psql" -qAtX -c 'CREATE TABLE acknowledged(n integer PRIMARY KEY); CREATE EXTENSION amcheck;'
    stop
    echo 0 > "$acknowledged"
}

# Nobody else runs in this namespace of processes: what lock files name is gone.
start() {
    rm -f "$data/postmaster.pid" "$run"/.s.PGSQL.*
    as_postgres "$bin/postgres" -D "$data" > "$run/server.log" 2>&1 &
    server=$!
    tries=0
    until "$bin/pg_isready" --quiet; do
        tries=$((tries + 1))
        [ $tries -lt 600 ] && kill -0 $server 2> /dev/null || fail "it does not start: $(tail -n 30 "$run/server.log")"
        sleep 0.1
    done
}

# The fast shutdown.
stop() {
    as_postgres kill -INT "$(head -n 1 "$data/postmaster.pid")"
    wait $server || fail "it does not stop: $(tail -n 30 "$run/server.log")"
}

load() {
    start
    "$bin/pgbench" --no-vacuum --client 4 --time 100000 > "$run/pgbench.log" 2>&1 &
    n=$(tail -n 1 "$acknowledged")
    n=$("$bin/psql" -qAtX -c "SELECT coalesce(max(n), $n) FROM acknowledged")
    while :; do
        n=$((n + 1))
        "$bin/psql" -qAtX -c "INSERT INTO acknowledged VALUES ($n)" || fail "$(tail -n 20 "$run/server.log")"
        acknowledge $n
    done
}

ask() {
    "$bin/psql" -qAtX -v ON_ERROR_STOP=1 -c "$1" || fail "it cannot answer: $1: $(tail -n 20 "$run/server.log")"
}

verify() {
    start
    last=$(tail -n 1 "$acknowledged")
    found=$(ask 'SELECT count(*) FROM acknowledged')
    [ "$(ask "SELECT count(*) FROM acknowledged WHERE n <= $last")" = "$last" ] || fail "$last rows were acknowledged, $found are there"
    history=$(ask 'SELECT coalesce(sum(delta), 0) FROM pgbench_history')
    for sum in 'sum(abalance) FROM pgbench_accounts' 'sum(tbalance) FROM pgbench_tellers' 'sum(bbalance) FROM pgbench_branches'; do
        [ "$(ask "SELECT $sum")" = "$history" ] || fail "$sum is not $history"
    done
    "$bin/pg_amcheck" --heapallindexed --parent-check --no-strict-names --all || fail "pg_amcheck finds damage"
    transactions=$(ask 'SELECT count(*) FROM pgbench_history')
    stop
    echo "$last rows acknowledged, $found found; $transactions transactions of pgbench balance; pg_amcheck ok"
}
