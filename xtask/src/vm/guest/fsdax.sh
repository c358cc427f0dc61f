# fs-DAX: ext4 with `-o dax` on a namespace of mode fsdax. Sourced by init.sh.

medium_up() {
    # `sf` among a mapping's flags: page faults are synchronous, which is what MAP_SYNC asks for.
    dir=/mnt/pmem/data old=yes mapped='^VmFlags:.* sf'
    mkdir -p /mnt/pmem
    if ! ndctl list -N | grep -q '"mode":"fsdax"'; then
        old=no
        ndctl create-namespace -f -e namespace0.0 --mode=fsdax --map=mem >&2 || return
        mkfs.ext4 -q -b 4096 /dev/pmem0 >&2 || return
    fi
    mount -t ext4 -o dax=always /dev/pmem0 /mnt/pmem
}

medium_down() {
    umount /mnt/pmem
}
