# Commits on three branches, switches between them, and gc. git syncs its files, but not its directories: a `sync` of one
# makes the commit durable, with everything before it.

repository=$FILES/repository
# What the user of this machine has set does not count.
export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL="$BESIDE/gitconfig"

prepare() {
    printf '[safe]\ndirectory = *\n' > "$GIT_CONFIG_GLOBAL"
    git clone --quiet --no-local --depth 30 --config core.fsync=all --config core.fsyncMethod=fsync --config gc.auto=0 \
        --config user.name=campaign --config user.email=campaign@localhost "file://$SOURCE" "$repository"
    cd "$repository"
    for branch in 0 1 2; do
        git branch "load-$branch" "HEAD~$((branch * 8))" || git branch "load-$branch"
    done
    sync .git
    : > "$acknowledged"
}

# Removes what a killed git leaves, and refuses to go on with.
unlock() {
    find .git -name '*.lock' -delete
    rm -f .git/gc.pid .git/packed-refs.new
}

load() {
    cd "$repository"
    unlock
    git reset --quiet --hard
    git clean -ffdq
    n=0
    while :; do
        n=$((n + 1))
        git checkout --quiet "load-$((n % 3))"
        mkdir -p load
        head -c $((n * 4099 % 300000 + 1)) /dev/urandom > "load/blob-$((n % 7))"
        echo "$SEED $n" >> load/text
        git add --all
        git commit --quiet --message "commit $n of $SEED"
        commit=$(git rev-parse HEAD)
        sync .git
        acknowledge "load-$((n % 3)) $commit"
        [ $((n % 6)) -ne 0 ] || git gc --quiet --prune=now
    done
}

verify() {
    cd "$repository"
    unlock
    git fsck --full --strict --no-dangling --no-progress || fail "fsck"
    for branch in load-0 load-1 load-2; do
        sed -n "s/^$branch //p" "$acknowledged" | sort > "$BESIDE/expected"
        git rev-list "$branch" | sort > "$BESIDE/found"
        lost=$(comm -23 "$BESIDE/expected" "$BESIDE/found")
        [ -z "$lost" ] || fail "$branch has lost commits: $lost"
    done
    git status > "$BESIDE/status" || fail "status"
    git reset --quiet --hard
    git clean -ffdq
    [ -z "$(git status --porcelain)" ] || fail "files differ from HEAD after a reset: $(git status --porcelain)"
    # Without an index git reads the bytes of every file.
    rm .git/index
    git reset --quiet
    git diff --exit-code --stat || fail "files have other bytes than the index says"
    echo "$(wc -l < "$acknowledged") commits acknowledged, all found; fsck clean"
}
