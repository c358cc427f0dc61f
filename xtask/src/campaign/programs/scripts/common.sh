# What the scripts of programs share. They are told:
#   FILES   the mount         BESIDE  a folder outside of it  SOURCE  this checkout
#   NAME    the program       WITH    one of the ways of place.rs   SEED    a random number
# `load` runs until it is killed. What it has acknowledged must be there at every later `verify`, whose last line is
# shown. Whatever fails ends a script, and fails the campaign.

export LC_ALL=C
acknowledged=$BESIDE/acknowledged

# Writes down what was acknowledged, outside of the mount.
acknowledge() {
    echo "$*" >> "$acknowledged"
}

fail() {
    echo "$NAME: $*"
    exit 1
}
