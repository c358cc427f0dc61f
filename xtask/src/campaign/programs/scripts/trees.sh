# Copies of a tree by rsync, tar and cp in turns, with modes, owners, times, extended attributes, ACLs, links, holes. A copy
# gets its name when it is complete; a `sync` of the directory makes it durable. The last two copies stay.

original=$BESIDE/original

prepare() {
    mkdir "$original"
    (cd "$SOURCE" && git -c safe.directory='*' ls-files -z -- crates docs ':!*/tests/__fuzz__/*') \
        | tar -C "$SOURCE" --null --files-from=- -cf - | tar -C "$original" -xf -
    cd "$original"
    mkdir special
    ln -s ../docs special/symbolic
    ln docs/fs.md special/hard
    truncate -s 3M special/hole
    printf end >> special/hole
    mkfifo special/fifo
    : > special/empty
    printf odd > 'special/a name with "quotes", spaces and ümlauts'
    setfattr -n user.note -v "a note" special/empty special
    setfattr -n trusted.note -v "$(head -c 3000 /dev/zero | tr '\0' x)" special/hole
    setfacl -m u:daemon:r special/empty
    setfacl -d -m g:daemon:rx special
    chown daemon:daemon special/hole
    chmod 6755 special/hole
    chmod 1777 special
    touch -d '1999-12-31 23:59:59.123456789 UTC' special/empty docs special
    manifest "$original" > "$BESIDE/manifest"
    echo 0 > "$acknowledged"
}

# Everything of a tree but the order of its names, and the sizes of its directories.
manifest() (
    cd "$1"
    find . -type d -printf '%p %y %m %U:%G %T@\n' -o -printf '%p %y %m %U:%G %T@ %s %n %l\n' | sort
    find . -type f -print0 | sort -z | xargs -0 sha256sum
    getfattr -R -h -d -m - -e hex . | awk -v RS= '{ print }' | sort
)

copy() {
    case $(($1 % 3)) in
    0) rsync -aHAXS "$original/" "$2/" ;;
    1) (cd "$original" && tar --acls --xattrs --xattrs-include='*' --format=posix -Scf "$FILES/archive" .) &&
        mkdir "$2" && tar -C "$2" --acls --xattrs --xattrs-include='*' --same-owner -Spxf "$FILES/archive" ;;
    2) cp -a "$original" "$2" ;;
    esac
}

load() {
    n=$(tail -n 1 "$acknowledged")
    rm -rf "$FILES/new"
    while :; do
        n=$((n + 1))
        copy $n "$FILES/new"
        # A kill may have come between name and acknowledgement.
        rm -rf "$FILES/copy-$n"
        mv "$FILES/new" "$FILES/copy-$n"
        sync "$FILES"
        acknowledge $n
        rm -rf "$FILES/copy-$((n - 2))"
    done
}

verify() {
    last=$(tail -n 1 "$acknowledged")
    for n in $((last - 1)) "$last"; do
        [ "$n" -ge 1 ] || continue
        diff -r --no-dereference "$original/crates" "$FILES/copy-$n/crates" || fail "copy $n has other files"
        manifest "$FILES/copy-$n" > "$BESIDE/found"
        diff "$BESIDE/manifest" "$BESIDE/found" || fail "copy $n differs"
    done
    echo "$last copies acknowledged, the last two found; nothing differs in $(find "$original" | wc -l) names"
}
