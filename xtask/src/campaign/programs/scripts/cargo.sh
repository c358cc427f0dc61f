# Incremental builds of a workspace without dependencies. After a kill a build may begin anew, but must succeed, and the
# program must print what its source says. It is the source that was synced, or a later one.

project=$FILES/project
export CARGO_TARGET_DIR="$project/target" CARGO_INCREMENTAL=1 CARGO_NET_OFFLINE=true

package() {
    mkdir -p "$project/$1/src"
    printf '[package]\nname = "%s"\nversion = "0.1.0"\nedition = "2021"\n%s\n' "$1" "$2" > "$project/$1/Cargo.toml"
}

# Each build changes the crate at the bottom, every second one that in the middle.
sources() {
    printf 'pub const NUMBER: u64 = %s;\npub fn text() -> String { format!("{}", NUMBER) }\n' "$1" \
        > "$project/bottom/src/lib.rs"
    [ $(($1 % 2)) -eq 1 ] || printf 'pub const EVEN: u64 = %s;\npub use bottom::text;\n' "$1" \
        > "$project/middle/src/lib.rs"
}

build() {
    cargo build --offline --quiet --manifest-path "$project/Cargo.toml" || fail "the build fails"
    number=$(sed -n 's/.*NUMBER: u64 = \(.*\);/\1/p' "$project/bottom/src/lib.rs")
    even=$(sed -n 's/.*EVEN: u64 = \(.*\);/\1/p' "$project/middle/src/lib.rs")
    printed=$("$CARGO_TARGET_DIR/debug/top") || fail "the program fails"
    [ "$printed" = "$number $even" ] || fail "the program prints $printed, and its source says $number $even"
}

prepare() {
    package bottom ''
    package middle '[dependencies]
bottom = { path = "../bottom" }'
    package top '[dependencies]
middle = { path = "../middle" }'
    printf '[workspace]\nresolver = "2"\nmembers = ["bottom", "middle", "top"]\n' > "$project/Cargo.toml"
    printf 'fn main() { println!("{} {}", middle::text(), middle::EVEN); }\n' > "$project/top/src/main.rs"
    sources 0
    build
    sync "$project"
    echo 0 > "$acknowledged"
}

load() {
    n=$(tail -n 1 "$acknowledged")
    while :; do
        n=$((n + 1))
        sources $n
        build
        sync "$project"
        acknowledge $n
    done
}

verify() {
    last=$(tail -n 1 "$acknowledged")
    # A kill may have come after a file was emptied and before it was written.
    [ -s "$project/bottom/src/lib.rs" ] && [ -s "$project/middle/src/lib.rs" ] || sources "$((last + 1))"
    build
    [ "$number" -ge "$last" ] || fail "source $last was acknowledged, and $number is there"
    echo "$last builds acknowledged, source $number is there; it builds and prints what it says"
}
